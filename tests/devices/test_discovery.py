"""Names of GPUs: one place resolves numbers, UUIDs, `CUDA_VISIBLE_DEVICES` and MIG."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base import machine_memory
from ecoshare.devices import registry
from ecoshare.errors import UnfitEnvironment, UsageError
from tests.driver import FakeDriver, presets
from tests.driver.faults import Fault


@pytest.fixture
def uuids(driver: FakeDriver) -> tuple[str, str]:
    return driver.gpu(0).uuid, driver.gpu(1).uuid


def found(names: str | None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    if names is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", names)
    return [str(gpu.uuid) for gpu in registry.visible_gpus()]


def test_gpus_are_counted_as_cuda_would_in_this_environment(
    uuids: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = uuids
    assert found(None, monkeypatch) == [first, second]
    assert found("1", monkeypatch) == [second]
    assert found("1,0", monkeypatch) == [second, first]
    assert found(f"{second}, 0", monkeypatch) == [second, first]
    assert found("", monkeypatch) == [] and found("-1", monkeypatch) == []
    assert found("1,7,0", monkeypatch) == [second], "what follows a name that fits nothing is invisible"
    assert found("GPU-", monkeypatch) == [], "it fits both"
    unique = next(second[:end] for end in range(5, len(second) + 1) if not first.startswith(second[:end]))
    assert found(unique, monkeypatch) == [second]


def test_a_device_is_named_by_its_place_among_those_and_kept_by_its_uuid(
    uuids: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    device = registry.find("cuda:0")
    assert (device.name, device.uuid, device.kind) == ("cuda:0", uuids[1], "cuda")
    assert registry.vendor(device.vendor).environment([device]) == {"CUDA_VISIBLE_DEVICES": uuids[1]}, (
        "a job must not count anew"
    )
    assert registry.find("cuda") == registry.find(None) == device
    with pytest.raises(UnfitEnvironment, match=r"shows 1 GPU$"):
        registry.find("cuda:1")
    with pytest.raises(UsageError, match="expected cpu, cuda"):
        registry.find("gpu0")
    assert registry.vendor("cpu").environment([registry.find("cpu")]) == {
        "CUDA_VISIBLE_DEVICES": "",
        "HIP_VISIBLE_DEVICES": "",
    }


@pytest.mark.usefixtures("uuids")
def test_a_mig_instance_is_refused_and_not_taken_for_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-0123")
    with pytest.raises(UnfitEnvironment, match="MIG instance"):
        registry.find(None)


@pytest.mark.parametrize(("changes", "why"), [({"mig_mode": 1}, "MIG instances"), ({"compute_mode": 2}, "prohibited")])
def test_a_gpu_that_cannot_be_shared_is_refused(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    preset = dataclasses.replace(presets.H200, **changes)
    with FakeDriver(tmp_path, [preset], virtual=True), pytest.raises(UnfitEnvironment, match=why):
        registry.find("cuda:0")


@pytest.mark.parametrize(
    ("fault", "functions", "why"),
    [
        (Fault.NO_PERMISSION, "nvmlDeviceGetMemoryInfo*", "Insufficient Permissions"),
        (Fault.UNKNOWN, "nvmlDeviceGetMemoryInfo*", "Unknown Error"),
        (Fault.TIMEOUT, "nvmlDeviceGetComputeMode", "Timeout"),
    ],
)
def test_a_gpu_that_does_not_tell_what_is_needed_leaves_the_others_as_they_are(
    driver: FakeDriver, uuids: tuple[str, str], fault: Fault, functions: str, why: str
) -> None:
    driver.gpu(0).fault(fault, functions=functions)
    first, second = registry.visible_gpus()
    assert why in first.unfit and not second.unfit
    assert registry.find("cuda:1").uuid == uuids[1]
    with pytest.raises(UnfitEnvironment, match=f"cuda:0 does not tell .*{why}"):
        registry.find("cuda:0")


def test_an_instance_in_a_container_is_no_reason_to_fail(tmp_path: Path) -> None:
    """The driver forbids what it would tell of the whole GPU."""
    with FakeDriver(tmp_path, [dataclasses.replace(presets.H200, mig_mode=1), presets.A4000]) as driver:
        driver.gpu(0).fault(Fault.NO_PERMISSION, functions="nvmlDeviceGet@(MemoryInfo*|ComputeMode|PowerManagement*)")
        first, second = registry.visible_gpus()
        assert "MIG instances" in first.unfit and not second.unfit


def test_a_gpu_without_memory_of_its_own_has_that_of_the_machine(driver: FakeDriver) -> None:
    """Such a GPU supports no question for its memory or its compute mode, and reports no power limit."""
    driver.gpu(0).fault(
        Fault.NOT_SUPPORTED, functions="nvmlDeviceGet@(MemoryInfo*|ComputeMode|MigMode|PowerManagement*)"
    )
    first, second = registry.visible_gpus()
    assert not first.unfit and first.total_bytes == machine_memory.total_bytes()
    assert 0 < first.free_bytes <= first.total_bytes
    assert (first.compute_mode, first.power_limit_w) == ("default", None)
    assert second.total_bytes == presets.A4000.memory_bytes


def test_a_gpu_that_this_process_may_not_use_is_not_counted(driver: FakeDriver, uuids: tuple[str, str]) -> None:
    driver.gpu(0).fault(Fault.NO_PERMISSION, functions="nvmlDeviceGetHandleByIndex*")
    assert [each.uuid for each in registry.visible_gpus()] == [uuids[1]]
