"""Number of jobs that share a GPU through MPS: more than it takes would fail one by one, in the middle of a run."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ecoshare.base.device import DeviceInfo
from ecoshare.devices import registry
from ecoshare.devices.vendor import ContextSharing
from ecoshare.errors import UnfitEnvironment

GPU = DeviceInfo("cuda:0", "cuda", "nvidia", "A GPU", "GPU-0", 1 << 34, 2, capability=(9, 0))
PASCAL = replace(GPU, name="cuda:1", capability=(6, 0))


@pytest.fixture(autouse=True)
def _control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control program that answers whatever it is asked."""
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text("#!/bin/sh\nexit 0\n")
    control.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / "pipes"))


def shares(folder: Path, devices: list[DeviceInfo], lanes: int, places: int) -> ContextSharing:
    return registry.vendor("nvidia").share_contexts(devices, lanes, places, folder, dict(os.environ))


@pytest.mark.parametrize(
    ("devices", "lanes", "places", "is_shared"),
    [
        ([GPU], 2, 24, True),
        ([GPU], 2, 25, False),
        ([PASCAL], 2, 8, True),
        ([PASCAL], 2, 9, False),
        ([GPU, PASCAL], 2, 9, False),
        ([replace(GPU, capability=None)], 2, 24, True),
        ([GPU], 1, 64, False),
    ],
)
def test_a_daemon_is_started_for_as_many_jobs_as_it_takes(
    tmp_path: Path, devices: list[DeviceInfo], lanes: int, places: int, is_shared: bool
) -> None:
    sharing = shares(tmp_path, devices, lanes, places)
    assert sharing.is_shared is is_shared
    if lanes > 1 and not is_shared:
        assert "time slices" in sharing.evidence and f"there may be {lanes * places}" in sharing.evidence


def test_a_daemon_that_runs_already_refuses_jobs_before_the_first_begins(tmp_path: Path) -> None:
    """The driver sends all of them there."""
    (tmp_path / "pipes").mkdir()
    (tmp_path / "pipes" / "control").touch()
    assert shares(tmp_path, [GPU], 1, 48).is_shared
    with pytest.raises(UnfitEnvironment, match="takes 48 processes on cuda:0, and there may be 49") as told:
        shares(tmp_path, [GPU], 1, 49)
    assert "--jobs-per-lane" in told.value.hint


def test_a_gpu_for_one_process_is_not_shared_without_a_daemon(tmp_path: Path) -> None:
    exclusive = replace(GPU, compute_mode="exclusive_process")
    with pytest.raises(UnfitEnvironment, match="exclusive_process, and MPS takes 48"):
        shares(tmp_path, [exclusive], 7, 7)
