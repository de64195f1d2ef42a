"""A rank is paced on the device of its lane, which need not be the current one of its process."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ecoshare.lane import device_sync
from ecoshare.lane.device_sync import DeviceSync, change_limit, drain, limit_cuda, memory_in_use


class Devices:
    """Stand-in for `torch.cuda` with several devices, of which the first is the current one.

    Attributes:
        asked: Device of each call, with its name.
        searches: Number of times at which torch was asked for its accelerator.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, object]] = []
        self.searches = 0
        calls = ("current_stream", "synchronize", "get_device_properties", "memory_stats")
        cuda: Any = SimpleNamespace(**{name: self._noted(name) for name in calls})
        cuda.is_initialized, cuda.current_device = lambda: True, lambda: 0
        cuda.Event = lambda blocking: SimpleNamespace(record=self._recorded, synchronize=lambda: None)
        cuda.set_per_process_memory_fraction = lambda _part, device: self.asked.append(("limit", device))
        cuda.empty_cache = lambda: None
        accelerator = SimpleNamespace(current_accelerator=self._searched)
        self.torch = SimpleNamespace(cuda=cuda, accelerator=accelerator, __version__="2.13.0")

    def _noted(self, name: str) -> Any:
        def call(device: object = "current") -> Any:
            self.asked.append((name, device))
            peak = {"allocated_bytes.all.peak": 7, "allocated_bytes.all.current": 5}
            statistics = {**peak, "reserved_bytes.all.current": 20, "inactive_split_bytes.all.current": 1}
            return statistics if name == "memory_stats" else SimpleNamespace(total_memory=1 << 30)

        return call

    def _searched(self) -> SimpleNamespace:
        self.searches += 1
        return SimpleNamespace(type="cuda")

    def _recorded(self, stream: object = None) -> None:
        self.asked.append(("record", "current" if stream is None else "given"))


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Devices:
    made = Devices()
    monkeypatch.setitem(sys.modules, "torch", made.torch)
    monkeypatch.setattr(device_sync, "_limits", {})
    return made


def test_the_pace_is_that_of_the_own_device(devices: Devices) -> None:
    DeviceSync(3).keep()
    assert devices.asked == [("current_stream", 3), ("record", "given")]


def test_a_boundary_asks_for_the_accelerator_only_if_modules_have_come(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it failed, each boundary of a job on the CPU would take longer for an accelerator that it does not use."""
    devices.torch.cuda.is_initialized = lambda: False
    sync = DeviceSync()
    for _ in range(5):
        sync.keep()
    assert devices.searches == 1
    monkeypatch.setitem(sys.modules, "torch.another", SimpleNamespace())
    sync.keep()
    assert devices.searches == 2, "an accelerator that a script loads late would not be paced"


def test_a_backend_that_is_registered_beside_cuda_does_not_hide_it(devices: Devices) -> None:
    """If it failed, a job on a GPU that imports such a backend would hand over before its device is done."""
    devices.torch.cuda.is_initialized = lambda: False
    devices.torch.npu = SimpleNamespace(is_initialized=lambda: False)
    devices.torch.accelerator.current_accelerator = lambda: SimpleNamespace(type="npu")
    sync = DeviceSync(3)
    sync.keep()
    devices.torch.cuda.is_initialized = lambda: True
    sync.keep()
    drain()
    assert devices.asked == [("current_stream", 3), ("record", "given"), ("synchronize", None)]


def test_torch_2_6_is_not_asked_for_its_accelerator(devices: Devices) -> None:
    """If it failed, a job on the CPU would initialise CUDA at its first boundary."""
    devices.torch.__version__ = "2.6.0+cu124"
    devices.torch.cuda.is_initialized = lambda: False
    DeviceSync().keep()
    drain()
    assert not devices.searches and not devices.asked


def test_memory_and_its_limit_are_those_of_the_own_device(devices: Devices) -> None:
    assert memory_in_use(3) == (7, 6)
    assert not change_limit(10, device=3), "it keeps 20"
    assert change_limit(30, device=3)
    limit_cuda(12, device=3)
    assert not change_limit(11, device=3)
    assert change_limit(15, device=3), "to raise a limit helps it, though it keeps 20"
    assert devices.asked and {device for _, device in devices.asked} == {3}
