"""A build of torch for CUDA, as users have it, on a machine without a GPU: nothing but jobs may initialise CUDA.

`scripts/nightly` runs these tests with such a build in an environment of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.driver import FakeDriver, build, presets

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.cold,
    pytest.mark.skipif(torch.version.cuda is None, reason="needs an accelerator's build of torch"),
]

LOOKS = """
import json, os, torch
print(json.dumps({
    "server": os.getppid(),
    "job": os.getpid(),
    "bad fork": torch.cuda._is_in_bad_fork(),
    "server has loaded it": "libcuda.so" in open(f"/proc/{os.getppid()}/maps").read(),
    "is there": torch.cuda.is_available(),
}))
"""
"""Script that tells what its process and the server are like, and then asks for CUDA."""


def run(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "looks.py").write_text(LOOKS)
    line = [sys.executable, "-m", "ecoshare", "run", "looks.py", "--no-report", "--no-profiles", "--json", *options]
    environment = {**os.environ, **variables, "ECOSHARE_STATE": str(folder / "state")}
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)


def told(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "ecoshare-runs/latest/jobs/looks/stdout.log").read_text())
    return found


def test_the_server_loads_no_driver_and_its_forks_may_use_cuda(tmp_path: Path) -> None:
    """A server that had initialised CUDA could fork no job that uses it."""
    done = run(tmp_path, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    seen = told(tmp_path)
    assert (seen["bad fork"], seen["server has loaded it"], seen["is there"]) == (False, False, False)


def test_the_job_initialises_cuda_and_the_server_never_does(tmp_path: Path) -> None:
    """The library of the driver is there, and notes each process that initialises it."""
    log = tmp_path / "initialised"
    path = str(build.cuda_without_device().parent)
    done = run(tmp_path, "--device", "cpu", LD_LIBRARY_PATH=path, CUDA_INIT_LOG=str(log))
    assert done.returncode == 0, done.stderr
    seen = told(tmp_path)
    assert {int(line) for line in log.read_text().split()} == {seen["job"]} and seen["job"] != seen["server"]
    assert not seen["bad fork"]


def test_a_driver_that_is_too_old_for_torch_ends_the_run_before_a_job_starts(tmp_path: Path) -> None:
    """Else the script would fall back to the processors, and get the joules of an idle GPU."""
    driver = FakeDriver(tmp_path, [presets.H200], version="535.183.01")
    done = run(tmp_path, "--control", "off", **driver.environment)
    major = str(torch.version.cuda).partition(".")[0]
    if int(major) < 13:
        pytest.skip("this build of torch needs an accelerator with no newer driver")
    assert done.returncode == 4, done.stdout
    assert f"is built for CUDA {torch.version.cuda}" in done.stderr and "driver 535.183.01" in done.stderr
    assert "driver 580 or newer, or a build of torch for CUDA 12" in done.stderr
    assert not list(tmp_path.glob("ecoshare-runs/*/jobs/looks/stdout.log"))
