"""Host memory of several machines in a plan."""

from __future__ import annotations

import pytest

from ecoshare.base.device import DeviceInfo
from ecoshare.errors import UnfitEnvironment
from ecoshare.runtime.planning.planned_limits import ParkingHost, check_host_memory, left_for_jobs

GIB = 1 << 30


def devices(kind: str, *nodes: str) -> tuple[DeviceInfo, ...]:
    found = enumerate(nodes)
    return tuple(DeviceInfo(f"{node}/{n}", kind, kind, "A model", None, 8 * GIB, 8, node=node) for n, node in found)


def test_each_machine_must_have_the_memory_and_the_one_that_has_not_is_named() -> None:
    both = {"a": ParkingHost(16 * GIB, 0), "b": ParkingHost(4 * GIB, 1 * GIB)}
    check_host_memory(4 * GIB, "priority", devices("cuda", "a", "b"), 1, both)
    check_host_memory(5 * GIB, "priority", devices("cpu", "a", "b"), 1, both)
    for kind in ("cuda", "cpu"):
        with pytest.raises(UnfitEnvironment, match=r"--host-memory 6 GiB: the node b has [45] GiB"):
            check_host_memory(6 * GIB, "priority", devices(kind, "a", "b"), 1, both)


def test_a_machine_that_cannot_move_memory_is_named() -> None:
    both = {
        "a": ParkingHost(16 * GIB, 0),
        "b": ParkingHost(16 * GIB, 0, refusal="the driver is too old", hint="update"),
    }
    with pytest.raises(UnfitEnvironment, match="the node b: the driver is too old") as caught:
        check_host_memory(GIB, "priority", devices("cuda", "a", "b"), 1, both)
    assert caught.value.hint == "update"
    shared = {"a": ParkingHost(16 * GIB, 0, has_mps=True)}
    check_host_memory(GIB, "priority", devices("cuda", "a"), 1, shared)
    with pytest.raises(UnfitEnvironment, match="share a context through MPS"):
        check_host_memory(GIB, "priority", devices("cuda", "a"), 2, shared)


def test_processors_set_aside_what_their_own_swap_does_not_hold() -> None:
    three = devices("cpu", "a", "a", "b")
    hosts = {"a": ParkingHost(16 * GIB, 0), "b": ParkingHost(16 * GIB, 3 * GIB)}
    assert [each.memory_bytes for each in left_for_jobs(4 * GIB, three, None, hosts)] == [6 * GIB, 6 * GIB, 7 * GIB]
    assert [each.memory_bytes for each in left_for_jobs(0, three, 5 * GIB, {})] == [5 * GIB] * 3
    gpus = devices("cuda", "a", "b")
    assert [each.memory_bytes for each in left_for_jobs(4 * GIB, gpus, None, hosts)] == [8 * GIB] * 2
