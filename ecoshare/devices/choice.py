"""The devices that a user names for a run: `cuda:0,cuda:2`, `all`, `cpu`, `cpu/2`, or the first so many.

All devices of a run are of one model, so that what is known of a job on one of them holds on the others.
"""

from __future__ import annotations

import re

from ecoshare.common.plural import counted, listed
from ecoshare.devices.partitions import partitions
from ecoshare.devices.registry import find, preferred, processors, visible_gpus, with_links
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.values.device import PROCESSORS, DeviceInfo

ALL = "all"
"""Name for every GPU that this process may use."""

_PARTITIONS = re.compile(rf"{PROCESSORS}/(\d+)")
_MOST_PARTITIONS = 9999


def find_all(wanted: str | None = None, count: int | None = None) -> tuple[DeviceInfo, ...]:
    """Devices of a run, in the order in which they are named, with their links to each other.

    Args:
        wanted: Names of devices, separated by commas; `all` for all GPUs; `cpu/N` for N partitions of the processors.
            None for all GPUs of the model of the first one that can be shared, or for the processors if there is no
            GPU.
        count: Number of devices; None for all that `wanted` names.

    Raises:
        UsageError: A name has another form, or the number is less than 1 or not that of the partitions.
        UnfitEnvironment: There is no such device, one is named twice, there are fewer devices, a named one cannot be
            shared, or the named ones differ.
    """
    if count is not None and count < 1:
        raise UsageError(f"--devices {count}: expected 1 or more")
    found = _named(wanted) if wanted is not None else _default()
    if count is None or count == len(found):
        return with_links(found)
    if found[0].processors:
        raise UsageError(f"--devices {count}: --device {wanted} is {counted(len(found), 'device')} by itself")
    if len(found) < count:
        there = counted(len(found), "device")
        words = f"--device {wanted} names {there}" if wanted else f"this machine has {there}"
        raise UnfitEnvironment(f"--devices {count}: {words}", _remedy(found, count))
    return with_links(found[:count])


def find_one(wanted: str | None = None) -> tuple[DeviceInfo]:
    """Device of a run that uses one only: see `registry.find`. `cpu/N` means the first of N partitions.

    Raises:
        UsageError: The name has another form.
        UnfitEnvironment: There is no such device here, or it cannot be shared.
    """
    return (find_all(wanted)[0] if wanted is not None and _PARTITIONS.fullmatch(wanted) else find(wanted),)


def _default() -> tuple[DeviceInfo, ...]:
    # Without any, it is the processors, or the reason why the first GPU cannot be shared.
    return tuple(preferred(visible_gpus())) or (find(None),)


def _named(wanted: str) -> tuple[DeviceInfo, ...]:
    if (parts := _PARTITIONS.fullmatch(wanted)) is not None:
        number = int(parts[1][:5])
        if not 1 <= number <= _MOST_PARTITIONS:
            raise UsageError(f"--device {wanted}: expected cpu/N with N from 1 to {_MOST_PARTITIONS}")
        return partitions(processors(), number) if number > 1 else (processors(),)
    if wanted == ALL:
        found = tuple(visible_gpus())
        if not found:
            raise UnfitEnvironment(f"--device {ALL}: this machine shows no GPU", "`--device cpu` needs none")
        for each in found:
            if each.unfit:
                raise UnfitEnvironment(f"{each.name} {each.unfit}", "name the others with --device")
    else:
        found = tuple(find(name.strip()) for name in wanted.split(","))
    names = [each.name for each in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UnfitEnvironment(f"--device {wanted}: there is one {listed(twice)} here", "name each device once")
    for each in found:
        if each.described != found[0].described:
            raise UnfitEnvironment(
                f"--device {wanted}: {found[0].name} is {found[0].described}, and {each.name} is {each.described}",
                "the devices of a run are of one model: give the others a run of their own",
            )
    return found


def _remedy(found: tuple[DeviceInfo, ...], count: int) -> str:
    if found[0].on_processors and not found[0].processors:
        return f"`--device cpu/{count}` cuts the processors into so many"
    return "see `ecoshare doctor`"
