"""Partitions of the processors, each of which a run uses as a device of its own.

::

    node 0: core 0 {0, 8}  core 1 {1, 9}  core 2 {2, 10}  core 3 {3, 11}     cpu/2 ──► cpu:0 = node 0, cpu:1 = node 1
    node 1: core 4 {4, 12} core 5 {5, 13} core 6 {6, 14}  core 7 {7, 15}     cpu/4 ──► two partitions in each node

A partition has whole cores, with all their hardware threads. All partitions have the same number of them, so that a job
takes as long in one as in another. They lie inside NUMA nodes, or are whole nodes, where their number allows it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from ecoshare.common.plural import counted
from ecoshare.devices.kernel_files import kernel_files
from ecoshare.errors import UnfitEnvironment
from ecoshare.values.device import DeviceInfo
from ecoshare.values.nearness import ACROSS_NODES, NUMA_NODE

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
        for place, processors in enumerate(cut(nodes, count))
    )


def cut(nodes: Sequence[Sequence[Core]], count: int) -> list[tuple[int, ...]]:
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


def nearness(parts: Sequence[Collection[int]]) -> dict[tuple[int, int], int]:
    """Nearness (`values/nearness.py`) of each pair of partitions, by their places, the smaller one first.

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
