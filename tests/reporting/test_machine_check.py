"""Lines of `ecoshare doctor` about parked jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshare.base import machine_memory
from ecoshare.devices.nvidia import cuda_checkpoint
from ecoshare.reporting import machine_check
from tests.driver import COMPILER, FakeDriver, build


@pytest.fixture
def gpu(tmp_path: Path) -> Iterator[FakeDriver]:
    if COMPILER is None:
        pytest.skip("the fake driver is written in C, and there is no compiler")
    with FakeDriver(tmp_path, virtual=True) as driver:
        yield driver


@pytest.fixture
def kernel_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """File in which the kernel module says which one it is."""
    path = tmp_path / "version"
    path.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05\n")
    monkeypatch.setattr(cuda_checkpoint, "KERNEL_MODULE", path)
    return path


@pytest.mark.usefixtures("gpu")
def test_a_gpu_of_which_memory_can_be_moved_is_named(kernel_module: Path) -> None:
    result = machine_check._parked_jobs()
    assert (result.subject, result.verdict, result.remedy) == ("parked jobs", "ok", "")
    assert "from cuda:0 to the host" in result.evidence
    kernel_module.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05\n")
    result = machine_check._parked_jobs()
    assert result.verdict == "warn" and "may hang when a resumed job is killed" in result.evidence and result.remedy
    kernel_module.unlink()
    assert machine_check._parked_jobs().verdict == "ok"


@pytest.mark.usefixtures("gpu")
def test_an_old_driver_is_told_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_checkpoint, "LIBRARY", str(build.old_cuda()))
    result = machine_check._parked_jobs()
    assert result.verdict == "warn" and "CUDA 12.4" in result.evidence and "update the driver" in result.remedy


def test_without_a_gpu_swap_counts(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    free_bytes = machine_memory.free_swap_bytes()
    result = machine_check._parked_jobs()
    assert result.verdict == ("ok" if free_bytes else "warn") and "swap" in result.evidence
    for size, verdict in ((0, "warn"), (4 << 30, "ok")):  # this machine has only one of the two
        monkeypatch.setattr(machine_memory, "free_swap_bytes", lambda size=size: size)
        assert machine_check._parked_jobs().verdict == verdict
    assert "4 GiB free" in machine_check._parked_jobs().evidence


def test_a_torch_that_the_driver_cannot_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if COMPILER is None:
        pytest.skip("the fake driver is written in C, and there is no compiler")
    seen = {"version": "2.14.1+cu130", "threads": 2, "cuda": "13.0", "hip": None, "architectures": "sm_90"}
    monkeypatch.setattr(machine_check, "_TORCH", f"print({json.dumps({**seen, 'available': False})!r})")
    with FakeDriver(tmp_path, version="570.86.10"):
        result = machine_check._torch()
    assert result.verdict == "warn" and "runs CUDA 12.8 at most" in result.evidence
    assert result.remedy.startswith("install driver 580 or newer") and "jobs on the processors run" in result.remedy
