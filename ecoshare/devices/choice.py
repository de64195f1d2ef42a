"""The devices that a user names for a run: `cuda:0,cuda:2`, `all`, `cpu`, `cpu/2`, or the first so many.

All devices of a run are of one model, so that what is known of a job on one of them holds on the others.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from ecoshare.base.device import ACROSS_NODES, NUMA_NODE, PROCESSORS, DeviceInfo
from ecoshare.base.plural import counted, listed
from ecoshare.devices.cpu_knobs import kernel_files
from ecoshare.devices.registry import find, preferred, processors, visible_gpus, with_links
from ecoshare.errors import UnfitEnvironment, UsageError

Core = tuple[int, ...]
"""Numbers of the processors (hardware threads) of one core."""


def partitions(whole: DeviceInfo, count: int) -> tuple[DeviceInfo, ...]:
    """Cut the processors into devices of the same size.

    Args:
        whole: All processors that this process may use.
        count: Number of partitions, at least 1.

    Raises:
        UnfitEnvironment: There are fewer cores than partitions.
    """
    nodes = cores_of(kernel_files(), os.sched_getaffinity(0))
    if count > (found := sum(map(len, nodes))):
        raise UnfitEnvironment(
            f"--device cpu/{count}: each takes a core or more, and this process may use {counted(found, 'core')}",
            f"cut them into {found} at most" if found > 1 else "`--device cpu` uses them as one device",
        )
    return tuple(
        replace(
            whole,
            name=f"{whole.name}:{place}",
            memory_bytes=whole.memory_bytes // count,
            cores=len(processors),
            processors=processors,
        )
        for place, processors in enumerate(cut_processors(nodes, count))
    )


def cut_processors(nodes: Sequence[Sequence[Core]], count: int) -> list[tuple[int, ...]]:
    """Processors of each partition.

    Args:
        nodes: Cores of each NUMA node.
        count: Number of partitions, at most that of all cores.
    """
    smallest, in_node = min(map(len, nodes)), count // len(nodes)
    if count % len(nodes) == 0 and (size := smallest // in_node):
        groups = [node[first : first + size] for node in nodes for first in range(0, size * in_node, size)]
    elif len(nodes) % count == 0:
        each = len(nodes) // count
        groups = [
            [core for node in nodes[first : first + each] for core in node[:smallest]]
            for first in range(0, len(nodes), each)
        ]
    else:
        cores = [core for node in nodes for core in node]
        size = len(cores) // count
        groups = [cores[first : first + size] for first in range(0, size * count, size)]
    return [tuple(sorted(number for core in group for number in core)) for group in groups]


def partition_nearness(parts: Sequence[Collection[int]]) -> dict[tuple[int, int], int]:
    """Nearness (`base/device.py`) of each pair of partitions, by their places, the smaller one first.

    Partitions of the same NUMA node are nearer than others. The result is empty if all lie in one node, or if the
    kernel tells no nodes.

    Args:
        parts: Processors of each partition.
    """
    node_of = _nodes(kernel_files())
    nodes = [frozenset(node_of.get(number) for number in part) for part in parts]
    if len(frozenset().union(*nodes)) < 2:
        return {}
    return {
        (one, other): NUMA_NODE if nodes[one] == nodes[other] and len(nodes[one]) == 1 else ACROSS_NODES
        for one, other in combinations(range(len(parts)), 2)
    }


def cores_of(files: Path, allowed: Collection[int]) -> list[list[Core]]:
    """Cores of each NUMA node that has any, in the order of their numbers.

    Cores of which this process may use fewer hardware threads than of most others are left out.

    Args:
        files: Folder of the kernel's files, such as `/sys`. Each processor is a core if they tell nothing.
        allowed: Numbers of the processors that this process may use.
    """
    found: dict[int, set[Core]] = {}
    node_of = _nodes(files)
    for number in allowed:
        topology = files / f"devices/system/cpu/cpu{number}/topology"
        siblings = _numbers(topology / "core_cpus_list") or _numbers(topology / "thread_siblings_list") or {number}
        core = tuple(sorted(siblings & set(allowed))) or (number,)
        found.setdefault(node_of.get(number, 0), set()).add(core)
    ((usual, _),) = Counter(len(core) for cores in found.values() for core in cores).most_common(1)
    nodes = [sorted(core for core in found[node] if len(core) == usual) for node in sorted(found)]
    return [node for node in nodes if node]


def _nodes(files: Path) -> dict[int, int]:
    """NUMA node of each processor."""
    nodes: dict[int, int] = {}
    for folder in (files / "devices/system/node").glob("node[0-9]*"):
        nodes |= dict.fromkeys(_numbers(folder / "cpulist"), int(folder.name[len("node") :]))
    return nodes


def _numbers(path: Path) -> set[int]:
    """Numbers of a list such as `0-3,8`; empty if it cannot be read."""
    try:
        parts = [part.partition("-") for part in path.read_text().strip().split(",") if part]
        return {number for first, _, last in parts for number in range(int(first), int(last or first) + 1)}
    except (OSError, ValueError):
        return set()


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
