"""Links of devices, as the driver and the kernel tell them."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pynvml
import pytest

from ecoshare.base import device
from ecoshare.base.device import nvlinks, over_nvlinks
from ecoshare.devices import choice
from ecoshare.devices.choice import find_all
from tests.devices.test_partitions import machine
from tests.driver import FakeDriver, Fault, presets

PAIRS = (0, 2), (1, 3)


@pytest.fixture
def four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """Driver with four GPUs: each pair has NVLinks, and lies in a NUMA node of its own."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    driver = FakeDriver(tmp_path, [presets.V100] * 4)
    for one, other in combinations(range(4), 2):
        driver.connect(one, other, level=pynvml.NVML_TOPOLOGY_SYSTEM)
    for one, other in PAIRS:
        driver.connect(one, other, nvlinks=4, level=pynvml.NVML_TOPOLOGY_NODE)
    return driver


def links(wanted: str | None = None) -> dict[str, dict[str, int]]:
    return {each.name: dict(each.links) for each in find_all(wanted)}


def test_gpus_are_linked_by_their_nvlinks_or_else_by_pcie(four: FakeDriver) -> None:
    with four:
        found = links()
    assert found["cuda:0"] == {"cuda:1": device.ACROSS_NODES, "cuda:2": over_nvlinks(4), "cuda:3": 1}
    assert found["cuda:3"] == {"cuda:0": device.ACROSS_NODES, "cuda:1": over_nvlinks(4), "cuda:2": 1}
    assert nvlinks(found["cuda:0"]["cuda:2"]) == 4 and nvlinks(found["cuda:0"]["cuda:1"]) == 0


def test_only_devices_of_the_run_are_named(four: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    with four:
        assert links("cuda:0,cuda:2") == {"cuda:0": {"cuda:2": 14}, "cuda:2": {"cuda:0": 14}}
        assert links("cuda:1") == {"cuda:1": {}}
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1,0")
        assert links() == {
            "cuda:0": {"cuda:1": 14, "cuda:2": 1},
            "cuda:1": {"cuda:0": 14, "cuda:2": 1},
            "cuda:2": {"cuda:0": 1, "cuda:1": 1},
        }, "the names are those of the visible GPUs"


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (pynvml.NVML_TOPOLOGY_INTERNAL, device.ONE_BOARD),
        (pynvml.NVML_TOPOLOGY_SINGLE, device.ONE_SWITCH),
        (pynvml.NVML_TOPOLOGY_MULTIPLE, device.SEVERAL_SWITCHES),
        (pynvml.NVML_TOPOLOGY_HOSTBRIDGE, device.HOST_BRIDGE),
        (pynvml.NVML_TOPOLOGY_NODE, device.NUMA_NODE),
        (pynvml.NVML_TOPOLOGY_SYSTEM, device.ACROSS_NODES),
        (17, None),
        (None, None),
    ],
)
def test_levels_of_pcie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: int | None, expected: int | None
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with FakeDriver(tmp_path, [presets.H200] * 2) as driver:
        driver.connect(0, 1, level=level)
        assert links()["cuda:0"] == ({} if expected is None else {"cuda:1": expected})


def test_gpus_on_nvswitches_are_all_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number is that of the GPU with fewer active links; a GPU without any is reached over PCIe."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with FakeDriver(tmp_path, [presets.H200] * 4) as driver:
        for gpu, idle in enumerate((0, 2, 0)):
            driver.connect(gpu, 3, level=pynvml.NVML_TOPOLOGY_SINGLE)
            driver.connect_to_switch(gpu, 18, idle=idle)
        assert links() == {
            "cuda:0": {"cuda:1": over_nvlinks(16), "cuda:2": over_nvlinks(18), "cuda:3": device.ONE_SWITCH},
            "cuda:1": {"cuda:0": over_nvlinks(16), "cuda:2": over_nvlinks(16), "cuda:3": device.ONE_SWITCH},
            "cuda:2": {"cuda:0": over_nvlinks(18), "cuda:1": over_nvlinks(16), "cuda:3": device.ONE_SWITCH},
            "cuda:3": dict.fromkeys(("cuda:0", "cuda:1", "cuda:2"), device.ONE_SWITCH),
        }


@pytest.mark.parametrize(
    ("functions", "expected"),
    [
        ("nvmlDeviceGetNvLink*", device.NUMA_NODE),
        ("nvmlDeviceGetNvLinkRemotePciInfo_v2", device.NUMA_NODE),
        ("nvmlDeviceGetPciInfo_v3", device.NUMA_NODE),
        ("nvmlDeviceGetNvLinkRemoteDeviceType", over_nvlinks(4)),
        ("nvmlDeviceGet@(NvLink*|TopologyCommonAncestor)", None),
    ],
)
@pytest.mark.parametrize("fault", [Fault.NOT_SUPPORTED, Fault.NO_PROFILE_FUNCTIONS, Fault.GPU_LOST])
def test_links_that_the_driver_does_not_tell_are_unknown(
    four: FakeDriver, functions: str, expected: int | None, fault: Fault
) -> None:
    """Neither a board that cannot tell, nor a library without the function, nor a failure ends a run."""
    with four:
        four.fault(fault, functions=functions)
        assert links()["cuda:0"].get("cuda:2") == expected


def test_links_are_read_beside_a_lost_gpu(four: FakeDriver) -> None:
    with four:
        four.gpu(1).fault(Fault.GPU_LOST)
        assert links() == {
            "cuda:0": {"cuda:1": 14, "cuda:2": 1},
            "cuda:1": {"cuda:0": 14, "cuda:2": 1},
            "cuda:2": {"cuda:0": 1, "cuda:1": 1},
        }


def test_partitions_of_a_numa_node_are_nearer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECOSHARE_SYSFS", str(machine(tmp_path, ["0,1,2,3", "4,5,6,7"], threads=1)))
    parts = [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert choice.partition_nearness(parts) == {
        pair: device.NUMA_NODE if pair in ((0, 1), (2, 3)) else device.ACROSS_NODES
        for pair in combinations(range(4), 2)
    }
    assert choice.partition_nearness([(0, 1, 2), (3, 4, 5), (2, 3, 4)])[0, 1] == device.ACROSS_NODES
    assert choice.partition_nearness([(1, 2, 5), (0, 4)]) == {(0, 1): device.ACROSS_NODES}, "both lie in two nodes"
    assert choice.partition_nearness(parts[:2]) == {}, "one node: all are equally near"
    monkeypatch.setenv("ECOSHARE_SYSFS", str(tmp_path / "nothing"))
    assert choice.partition_nearness(parts) == {}
