"""Choice of neighbours in a real run: jobs that leave the processors idle are moved beside each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.measurement import MeasurementStatus
from ecoshare.core.commands import AskInterference, StartJob
from ecoshare.core.events import InterferencePredicted, RunOpened, SettingMeasured
from ecoshare.record.event_log import read
from tests.runtime.running import SLEEPS, run


@pytest.mark.nightly
def test_jobs_that_leave_the_processors_idle_are_moved_beside_each_other(tmp_path: Path) -> None:
    script = tmp_path / "sleeps.py"
    script.write_text(SLEEPS)
    jobs: list[dict[str, Any]] = [
        {"name": f"j{count}", "script": str(script), "args": [str(count)], "iterations": count} for count in (900, 901)
    ]
    options = ("--policy", "energy", "--lanes", "2", "--profiles", str(tmp_path / "profiles"))
    done = run(tmp_path, *jobs, options=options)
    assert done.code == 0, done.stderr
    log = list(read(done.folder / "events.jsonl"))
    assert sum(isinstance(each, StartJob) for each in log) == 2, "no job was restarted"
    assert any(isinstance(each, InterferencePredicted) for each in log)
    (pair,) = [
        each.measurement for each in log if isinstance(each, SettingMeasured) and len(each.measurement.times_s) == 2
    ]
    assert pair.status is MeasurementStatus.MEASURED, "a pair is measured without a meter, too"
    assert pair.power_w is None and pair.modelled_w is not None, "a model is no meter"
    ends = {job["name"]: job["finish_s"] for job in done.summary["jobs"]}
    assert done.summary["makespan_s"] < 30.0, f"one after the other they take over 38 s: {ends}"
    awake = tmp_path / "awake.py"
    awake.write_text(SLEEPS.replace("time.sleep(0.02)", ""))
    for job in jobs:
        alone = subprocess.run([sys.executable, awake, *job["args"]], capture_output=True, check=True)
        assert done.log(job["name"]) == alone.stdout, "the same bits"
    again = run(tmp_path, *jobs, options=options)
    opened = next(each for each in read(again.folder / "events.jsonl") if isinstance(each, RunOpened))
    classes = [done.job(job["name"])["class"] for job in jobs]
    (seen,) = opened.colocations
    assert sorted(seen.classes) == sorted(classes), "the next run knows what this one has measured"
    assert seen.power_w == pair.modelled_w
    (asked,) = [each for each in read(again.folder / "events.jsonl") if isinstance(each, AskInterference)][:1]
    assert asked.colocations == opened.colocations
