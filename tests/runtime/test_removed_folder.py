"""Runs with a folder that one of their own jobs removes or renames meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.core.events import JobExited
from ecoshare.record import event_log
from tests.runtime.running import Finished, run

CLEANS = {
    # The run may write a file while its folder is being removed, which `rmtree` alone would report as an error.
    "removes all": (
        "import pathlib, shutil\nruns = pathlib.Path('ecoshare-runs')\n"
        "for _ in range(50):\n    shutil.rmtree(runs, ignore_errors=True)\n    if not runs.exists():\n        break\n"
    ),
    "renames the run": (
        "import pathlib\nrun = pathlib.Path('ecoshare-runs/latest').resolve()\nrun.rename(run.with_name('old'))\n"
    ),
    "puts a file in the place of the jobs": (
        "import pathlib, shutil\njobs = pathlib.Path('ecoshare-runs/latest').resolve() / 'jobs'\n"
        "shutil.rmtree(jobs)\njobs.write_text('mine')\n"
    ),
}


def cleaned(tmp_path: Path, way: str) -> Finished:
    """Job that cleans up beside one that goes on; a third one starts after the clean-up.

    Each runs in a lane of its own: a script without iterations would keep the turn of a shared lane to its end.
    """
    (tmp_path / "cleans.py").write_text(f"{CLEANS[way]}pathlib.Path('cleaned').touch()\n")
    waits = "import pathlib, time\nwhile not pathlib.Path('cleaned').exists():\n    time.sleep(0.01)\n"
    (tmp_path / "says.py").write_text(f"{waits}time.sleep(0.5)\nprint('said')\n")
    scripts = {"first": "says.py", "cleans": "cleans.py", "last": "says.py"}
    jobs = [{"name": name, "script": script} for name, script in scripts.items()]
    return run(tmp_path, *jobs, options=("--lanes", "2", "--jobs-per-lane", "1"))


@pytest.mark.nightly
@pytest.mark.parametrize("way", ["removes all", pytest.param("renames the run", marks=pytest.mark.slow)])
def test_a_run_goes_on_where_its_folder_was(tmp_path: Path, way: str) -> None:
    done = cleaned(tmp_path, way)
    assert done.code == 0, done.stderr
    assert {job["state"] for job in done.summary["jobs"]} == {"completed"}
    assert "made again, without what jobs had printed" in done.stderr
    assert done.log("last") == b"said\n"
    files = {"environment.json", "events.jsonl", "jobs.yaml", "plan.json", "samples.jsonl", "summary.json"}
    assert {path.name for path in done.folder.iterdir()} >= files
    assert done.summary["energy"] is not None
    if way == "renames the run":
        assert (tmp_path / "ecoshare-runs/old/jobs/first/stdout.log").read_text() == "said\n"


@pytest.mark.nightly
def test_an_end_that_cannot_be_recorded_is_in_the_log(tmp_path: Path) -> None:
    done = cleaned(tmp_path, "puts a file in the place of the jobs")
    ends = [each for each in event_log.read(done.folder / "events.jsonl") if isinstance(each, JobExited)]
    assert {each.job for each in ends if each.outcome.value == "completed"} == {"first", "cleans"}
    assert done.job("last")["state"] == "failed" and done.code == 1, "it has nowhere to print"
