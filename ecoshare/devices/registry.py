"""Registry of the vendors, and the device that a name means.

Each module of `ecoshare/devices/vendors/` is a vendor. Nothing else in ecoshare names one.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import pkgutil
import re
from collections.abc import Sequence
from dataclasses import replace

from ecoshare.base.device import PROCESSORS, DeviceInfo
from ecoshare.base.plural import counted
from ecoshare.devices import vendors
from ecoshare.devices.knob import Knobs
from ecoshare.devices.meter import PowerModel
from ecoshare.devices.torch_build import TorchBuild
from ecoshare.devices.vendor import OpenDevice, Vendor
from ecoshare.errors import UnfitEnvironment, UsageError, did_you_mean


@functools.cache
def all_vendors() -> tuple[Vendor, ...]:
    """All vendors, in the order of their precedence."""
    names = [each.name for each in pkgutil.iter_modules(vendors.__path__)]
    modules = [importlib.import_module(f"{vendors.__name__}.{name}") for name in names]
    found: list[Vendor] = [module.VENDOR for module in modules]
    return tuple(sorted(found, key=lambda each: each.precedence))


def vendor(name: str) -> Vendor:
    """Vendor with this name.

    Raises:
        UnfitEnvironment: This version of ecoshare knows no such vendor.
    """
    for each in all_vendors():
        if each.name == name:
            return each
    known = ", ".join(each.name for each in all_vendors())
    raise UnfitEnvironment(f"devices of {name} are not known here, only those of {known}")


def with_links(devices: Sequence[DeviceInfo]) -> tuple[DeviceInfo, ...]:
    """The same devices, of one vendor, each with its nearness to the others.

    Raises:
        UnfitEnvironment: The driver fails.
    """
    if len(devices) < 2:
        return tuple(devices)
    links: dict[str, list[tuple[str, int]]] = {each.name: [] for each in devices}
    for (one, other), near in vendor(devices[0].vendor).nearness(devices).items():
        links[one].append((other, near))
        links[other].append((one, near))
    return tuple(replace(each, links=tuple(links[each.name])) for each in devices)


def open_device(device: DeviceInfo) -> OpenDevice:
    """Open a device to read it.

    Raises:
        UnfitEnvironment: The device is not there, or does not answer.
    """
    return vendor(device.vendor).open(device)


def power_models(devices: Sequence[DeviceInfo]) -> dict[str, PowerModel | None]:
    """Power model of each device of this machine, by its name; None for none.

    Raises:
        UnfitEnvironment: A device is not there, or does not answer.
    """
    return {each.name: vendor(each.vendor).power_model(each) for each in devices}


def check_torch(devices: Sequence[DeviceInfo], build: TorchBuild) -> None:
    """Check that the torch of jobs can use the devices of a run, which are of one vendor.

    Raises:
        UnfitEnvironment: It cannot use one of them.
    """
    vendor(devices[0].vendor).check_torch(devices, build)


def open_knobs(name: str, key: str) -> Knobs:
    """Open the knobs of a device.

    Args:
        name: Name of the vendor.
        key: Key of the device, such as a GPU's UUID.

    Raises:
        UnfitEnvironment: The vendor is not known, or the device is not there or does not answer.
    """
    return vendor(name).open_knobs(key)


def visible_gpus() -> list[DeviceInfo]:
    """GPUs that this process may use, in torch's order. One torch serves one vendor: the first one with a GPU counts.

    Raises:
        UnfitEnvironment: A driver fails, or the environment names what ecoshare cannot share.
    """
    for each in all_vendors():
        if each.kind != PROCESSORS and (found := each.visible()):
            return found
    return []


def preferred(gpus: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    """GPUs that a run takes by itself: those that can be shared, of the model with the most memory.

    A display card has less, and may be the first.
    """
    fit = [each for each in gpus if not each.unfit]
    largest = max(fit, key=lambda each: each.total_bytes, default=None)
    return [each for each in fit if largest is not None and each.described == largest.described]


def processors() -> DeviceInfo:
    """Processors and memory that this process may use, as one device."""
    return vendor(PROCESSORS).visible()[0]


def find(wanted: str | None) -> DeviceInfo:
    """One device, by its name (`cpu`, `cuda`, `cuda:1`); without a name the first of `preferred`, else the processors.

    Raises:
        UsageError: The name has another form.
        UnfitEnvironment: There is no such device here, or it cannot be shared.
    """
    if wanted is not None and not re.fullmatch(r"cpu|cuda(:\d+)?", wanted):
        raise UsageError(f"--device {wanted}: expected cpu, cuda, cuda:N, or for a run cpu/N or all", _meant(wanted))
    if wanted == PROCESSORS:
        return processors()
    visible = visible_gpus()
    if wanted is None:
        if not visible:
            return processors()
        visible = preferred(visible) or visible
    index = int(wanted.partition(":")[2] or 0) if wanted else 0
    if index >= len(visible):
        raise UnfitEnvironment(
            f"--device {wanted}: this machine shows {counted(len(visible), 'GPU')}",
            "see `ecoshare doctor`; `--device cpu` needs none",
        )
    if (found := visible[index]).unfit:
        raise UnfitEnvironment(f"{found.name} {found.unfit}")
    return found


def _meant(wanted: str) -> str:
    # Letter for letter, `gpu` is nearer to `cpu` than to `cuda`.
    is_gpu = wanted.lower().startswith(("gpu", "nvidia", "amd", "rocm", "hip"))
    return did_you_mean("cuda" if is_gpu else wanted, ("cpu", "cuda"))


def check_meter(device: DeviceInfo) -> None:
    """Return if the device has a meter that measures joules; a search needs one.

    Raises:
        UnfitEnvironment: This device has no meter that can be read.
    """
    try:
        with contextlib.closing(open_device(device)) as opened:
            opened.open_meter()
    except UnfitEnvironment as fault:
        raise UnfitEnvironment(
            f"tuning takes joules that are measured: {fault}", fault.hint or "see `ecoshare doctor`"
        ) from fault
