"""Partitions of the processors: whole cores, all of one size, inside NUMA nodes where their number allows it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.devices.choice import cores_of, cut_processors, partitions
from ecoshare.devices.registry import processors
from ecoshare.errors import UnfitEnvironment


def machine(folder: Path, nodes: list[str], threads: int = 2) -> Path:
    """Files of a kernel on a machine with these processors in each node. Processor i and i + half share a core."""
    numbers = [int(number) for node in nodes for number in node.split(",")]
    cores = len(numbers) // threads
    for number in numbers:
        topology = folder / f"devices/system/cpu/cpu{number}/topology"
        topology.mkdir(parents=True)
        siblings = ",".join(str(number % cores + cores * thread) for thread in range(threads))
        (topology / "core_cpus_list").write_text(f"{siblings}\n")
    for index, node in enumerate(nodes):
        (folder / f"devices/system/node/node{index}").mkdir(parents=True)
        (folder / f"devices/system/node/node{index}/cpulist").write_text(f"{node}\n")
    return folder


def test_hardware_threads_of_a_core_stay_together(tmp_path: Path) -> None:
    files = machine(tmp_path, ["0,1,2,3,8,9,10,11", "4,5,6,7,12,13,14,15"])
    nodes = cores_of(files, range(16))
    assert nodes == [[(0, 8), (1, 9), (2, 10), (3, 11)], [(4, 12), (5, 13), (6, 14), (7, 15)]]
    assert cut_processors(nodes, 2) == [(0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)]
    assert cut_processors(nodes, 4)[0] == (0, 1, 8, 9)
    assert cut_processors(nodes, 3) == [(0, 1, 8, 9), (2, 3, 10, 11), (4, 5, 12, 13)], "all have the same size"


def test_of_four_nodes_two_partitions_have_two_each() -> None:
    nodes = [[(number,) for number in range(first, first + 3)] for first in range(0, 12, 3)]
    assert cut_processors(nodes, 2) == [(0, 1, 2, 3, 4, 5), (6, 7, 8, 9, 10, 11)]


def test_processors_that_this_process_may_not_use_are_in_no_partition(tmp_path: Path) -> None:
    files = machine(tmp_path, ["0,1,2,3,8,9,10,11", "4,5,6,7,12,13,14,15"])
    assert cores_of(files, {0, 1, 8, 9, 4}) == [[(0, 8), (1, 9)]], "half of core 4 is another's"
    assert cores_of(files, {1, 5}) == [[(1,)], [(5,)]]


def test_a_kernel_that_tells_nothing_has_cores_of_one_thread(tmp_path: Path) -> None:
    assert cores_of(tmp_path, {2, 0, 1}) == [[(0,), (1,), (2,)]]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 20), st.integers(1, 2))
def test_partitions_are_equal_and_apart(sizes: list[int], count: int, threads: int) -> None:
    numbers = iter(range(1000))
    nodes = [[tuple(next(numbers) for _ in range(threads)) for _ in range(size)] for size in sizes]
    if count > sum(sizes):
        return
    parts = cut_processors(nodes, count)
    used = [number for part in parts for number in part]
    assert len(parts) == count and len(set(map(len, parts))) == 1 and parts[0]
    assert len(set(used)) == len(used)
    for node in nodes:
        for core in node:
            assert sum(set(core) <= set(part) for part in parts) == bool(set(core) & set(used)), "a core is whole"


def test_a_partition_is_a_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ECOSHARE_SYSFS", str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3})
    whole = processors()
    first, second = partitions(whole, 2)
    assert (first.name, first.processors, second.name, second.processors) == ("cpu:0", (0, 1), "cpu:1", (2, 3))
    assert first.cores == 2 and first.memory_bytes == whole.memory_bytes // 2
    assert first.described == second.described != whole.described, "its profiles are not those of the whole"
    with pytest.raises(UnfitEnvironment, match=r"^--device cpu/5: each takes a core or more, .* may use 4 cores$"):
        partitions(whole, 5)
