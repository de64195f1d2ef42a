"""The work of a service goes before that of jobs in other lanes, where they share a context through MPS."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.driver import COMPILER, FakeDriver, presets
from tests.runtime.running import job_file, words
from tests.warm import Started

SAYS = """
import os
print(os.environ.get("CUDA_MPS_CLIENT_PRIORITY"), os.environ["CUDA_MPS_PIPE_DIRECTORY"])
"""


@pytest.mark.nightly
@pytest.mark.skipif(COMPILER is None, reason="the fake driver is compiled, and there is no C compiler")
@pytest.mark.parametrize("serves", [True, False])
def test_other_jobs_have_the_lower_priority_of_mps(tmp_path: Path, serves: bool) -> None:
    pipes, control = tmp_path / "pipes", tmp_path / "nvidia-cuda-mps-control"
    pipes.mkdir()
    (pipes / "control").touch()
    control.write_text("#!/bin/sh\nread question\necho 7\n")
    control.chmod(0o755)
    (tmp_path / "says.py").write_text(SAYS)
    jobs: list[dict[str, Any]] = [
        {"name": "training", "script": "says.py"},
        {"name": "own", "script": "says.py", "env": {"CUDA_MPS_CLIENT_PRIORITY": "0"}},
        *([{"name": "serves", "script": "says.py", "service": {"p99": "50 ms"}}] if serves else []),
    ]
    driver = FakeDriver(tmp_path, [presets.H200])
    environment = {**os.environ, **driver.environment, "CUDA_MPS_PIPE_DIRECTORY": str(pipes)}
    environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    line = [word for word in words(job_file(tmp_path, *jobs), "--control", "off") if word not in ("--device", "cpu")]
    done = Started(*line, environment=environment).done()
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "ecoshare-runs" / "latest" / "jobs"
    said = {each["name"]: (folder / each["name"] / "stdout.log").read_text().split() for each in jobs}
    assert said.pop("training") == ["1" if serves else "None", str(pipes)]
    assert said.pop("own") == ["0", str(pipes)], "a job may say otherwise"
    assert not serves or said == {"serves": ["None", str(pipes)]}
