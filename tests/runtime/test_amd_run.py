"""A whole run on a fake AMD GPU: what differs between vendors is in one file, and a run meets it there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ecoshare.record.samples import Sample, Session, read
from tests.driver import COMPILER
from tests.driver.amd import MI300X, FakeAmdDriver
from tests.driver.training import COMPUTES, SCRIPT, STREAMS
from tests.runtime.running import job_file
from tests.warm import ecoshare

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="the fake driver is compiled, and there is no C compiler"),
    pytest.mark.slow,
]


def test_a_run_measures_the_joules_of_an_amd_gpu(tmp_path: Path) -> None:
    (tmp_path / "trains.py").write_text(SCRIPT)
    driver = FakeAmdDriver(tmp_path, [MI300X, MI300X])
    path = job_file(tmp_path, COMPUTES.job(150), STREAMS.job(120))
    environment = {**os.environ, **driver.environment, "HIP_VISIBLE_DEVICES": "1", "ECOSHARE_STATE": str(tmp_path)}
    options = ("--device", "cuda:0", "--control", "off", "--no-profiles", "--no-report", "--json")
    done = ecoshare("run", str(path), *options, cwd=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    (device,) = summary["devices"]
    assert (device["vendor"], device["uuid"]) == ("amd", driver.gpu(1).uuid)
    assert (summary["energy"]["source"], summary["energy"]["meter"]) == ("measured", "amdsmi")
    session, *lines = read(tmp_path / summary["run"] / "samples.jsonl")
    assert isinstance(session, Session) and session.scope == "gpu"
    used = [each for line in lines if isinstance(line, Sample) for each in line.jobs.values()]
    assert any(each.memory_bytes for each in used), "the driver tells the memory of each job"
    assert all(job["state"] == "completed" and job["energy"]["value_j"] > 0.0 for job in summary["jobs"])
    assert not driver.setter_calls(), "the run was not allowed to set anything"
