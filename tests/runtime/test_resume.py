"""Resuming an interrupted run from its log and its exit records."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.attempt import Outcome
from ecoshare.core.events import Event, JobExited, Reported
from ecoshare.lane import exit_records
from ecoshare.lane.messages import Ended
from ecoshare.record import event_log
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.run_history import RunHistory
from ecoshare.runtime.planning.resume import reached_s
from tests.runtime.running import job_file, resume, run, slow_steps
from tests.runtime.test_sweep import PRINTED, sweep
from tests.warm import ecoshare


def cut(folder: Path, before: Any) -> None:
    """Cut the log at the first such entry, as if the controller had died there."""
    entries = list(event_log.read(folder / "events.jsonl"))
    place = next(number for number, entry in enumerate(entries) if before(entry))
    lines = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "events.jsonl").write_bytes(b"".join(lines[:place]))


@pytest.mark.nightly
def test_what_a_trial_said_last_is_read_from_its_log_where_no_event_has_it(tmp_path: Path) -> None:
    done = run(tmp_path, sweep(grid={"lr": [0.1, 0.01, 0.05]}, metric=PRINTED, parallel=1))
    before = done.summary
    cut(done.folder, lambda entry: isinstance(entry, Reported) and entry.job == "s.0001" and entry.step == 2)
    shutil.rmtree(done.folder / "jobs" / "s.0002")  # which came after that
    again = resume(done.folder)
    assert again.code == 0, again.stderr
    for name in ("s.0000", "s.0001", "s.0002"):
        assert (again.job(name)["value"], again.job(name)["steps"]) == (done.job(name)["value"], 3)
        assert again.job(name)["attempts"] == 1, "its end was on the disk"
    assert again.summary["sweeps"][0]["best"][0]["name"] == before["sweeps"][0]["best"][0]["name"]


@pytest.mark.nightly
def test_optuna_hears_of_trials_that_ended_unheard(tmp_path: Path) -> None:
    job = sweep(
        optuna={"space": {"lr": {"log": [1e-3, 0.2]}}, "sampler": "RandomSampler"}, trials=4, metric=PRINTED, parallel=1
    )
    done = run(tmp_path, job)
    study = done.folder / "optuna-s.log"
    kept = study.read_bytes().splitlines(keepends=True)
    cut(done.folder, lambda entry: isinstance(entry, JobExited) and entry.job == "s.0001")
    # State of the study then: trial 1 was asked for, and its result was never told.
    asked = [place for place, line in enumerate(kept) if json.loads(line)["op_code"] == 4]
    told = next(place for place, line in enumerate(kept) if place > asked[1] and json.loads(line)["op_code"] == 6)
    study.write_bytes(b"".join(kept[:told]))
    for later in ("s.0002", "s.0003"):
        shutil.rmtree(done.folder / "jobs" / later)
    again = resume(done.folder)
    assert again.code == 0, again.stderr
    from ecoshare.jobs.trial_sampler import Range
    from ecoshare.jobs.with_optuna import OptunaSampler

    space = {"lr": Range(1e-3, 0.2, log=True)}
    trials = OptunaSampler.open(study, "s", space, 4, False, ("RandomSampler", {}), None, 0).study.trials
    assert [trial.value for trial in trials] == [again.job(f"s.000{number}")["value"] for number in range(4)]


@pytest.mark.nightly
def test_a_record_that_a_power_cut_has_emptied_is_made_up_for_by_the_log(tmp_path: Path) -> None:
    """Records are not synced, but the log is: an end in the log is not repeated."""
    done = run(tmp_path, slow_steps("a", 2, 1), slow_steps("b", 2, 1))
    folder = RunFolder(done.folder)
    (folder.job("a") / "exit-1.json").write_bytes(b"")
    (folder.job("b") / "exit-1.json").unlink()
    again = resume(done.folder)
    assert again.code == 0 and "ended already" in again.stderr
    jobs = again.summary["jobs"]
    assert [(job["state"], job["attempts"]) for job in jobs] == 2 * [("completed", 1)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outcome", "attempts", "goes_on"),
    [
        (Outcome.OUTGREW, 1, True),
        pytest.param(Outcome.OUTGREW, 2, False, marks=pytest.mark.nightly),
        pytest.param(Outcome.OUT_OF_MEMORY, 1, False, marks=pytest.mark.nightly),
    ],
)
def test_a_job_that_outgrew_its_memory_begins_again_once_over_a_kill_too(
    tmp_path: Path, outcome: Outcome, attempts: int, goes_on: bool
) -> None:
    """If it failed, a kill would lose it, or it would begin again twice. A script's own failure is not ecoshare's."""
    done = run(tmp_path, slow_steps("a", 2, 1), options=("--memory", "3 GiB"))
    folder = RunFolder(done.folder)
    (folder.job("a") / "exit-1.json").unlink()
    lines = folder.events.read_text().splitlines()
    before = lines[: next(place for place, line in enumerate(lines) if '"StartJob"' in line)]
    kept = [json.dumps(fields) for fields in _attempts(attempts, outcome)]
    folder.events.write_text("\n".join([*before, *kept]) + "\n")
    for attempt in range(1, attempts + 1):
        exit_records.write(folder.job("a"), Ended("a", attempt, outcome.value, 1, "too much"))
    again = resume(done.folder, forged=True)
    assert (again.job("a")["state"] == "completed") is goes_on
    assert again.job("a")["attempts"] == attempts + goes_on


def _attempts(count: int, outcome: Outcome) -> Iterator[dict[str, Any]]:
    """Log entries of the attempts: their starts, and the ends of all but the last, which is in its record only."""
    for number in range(1, count + 1):
        own = {"job": "a", "attempt": number}
        yield {"command": "StartJob", "id": 100 + number, **own, "lanes": [0], "cap_bytes": 100}
        if number < count:
            end: dict[str, Any] = {"outcome": outcome.value, "exit_code": 1, "reason": "too much", "usage": {}}
            yield {"event": "JobExited", "at_s": 100.0 + number, **own, **end}


@pytest.mark.nightly
def test_time_goes_on_where_the_clock_was_set_back(tmp_path: Path) -> None:
    """Before, the run waited silently until the clock had reached the old time."""
    done = run(tmp_path, slow_steps("a", 2, 1), slow_steps("b", 2, 1, arrival="0.5 s"))
    cut(done.folder, lambda entry: isinstance(entry, JobExited) and entry.job == "b")
    (done.folder / "jobs" / "b" / "exit-1.json").unlink()
    environment = json.loads((done.folder / "environment.json").read_text())
    environment["opened_unix_s"] += 3600.0  # an hour back is as if the run had begun an hour later
    (done.folder / "environment.json").write_text(json.dumps(environment))
    before_s = reached_s(RunFolder(done.folder), RunHistory(event_log.read(done.folder / "events.jsonl")))
    again = resume(done.folder)
    assert again.code == 0, again.stderr
    assert again.job("b")["attempts"] == 2
    times_s = [each.at_s for each in event_log.read(done.folder / "events.jsonl") if isinstance(each, Event)]
    assert times_s == sorted(times_s)
    assert before_s < times_s[-1] < before_s + 60.0


@pytest.mark.nightly
def test_a_run_goes_on_from_any_folder(tmp_path: Path) -> None:
    """Before, paths relative to the folder in which the run began were looked for in the present folder."""
    path = job_file(tmp_path, slow_steps("a", 2, 1), slow_steps("b", 2, 1))
    line = ("run", path.name, "--device", "cpu", "--profiles", "known", "--no-report")
    assert ecoshare(*line, cwd=tmp_path).returncode == 0
    (folder,) = (tmp_path / "ecoshare-runs").glob("2*")
    cut(folder, lambda entry: isinstance(entry, JobExited) and entry.job == "b")
    (folder / "jobs" / "b" / "exit-1.json").unlink()
    (tmp_path / "elsewhere").mkdir()
    again = ecoshare("run", "--resume", folder, "--no-report", cwd=tmp_path / "elsewhere")
    assert again.returncode == 0, again.stderr
    assert not list((tmp_path / "elsewhere").iterdir())
    assert json.loads((folder / "summary.json").read_text())["state"] == "completed"


@pytest.mark.slow
def test_a_damaged_option_of_the_run_is_named_in_one_line(tmp_path: Path) -> None:
    """Before, it was a traceback of the planner."""
    plan = run(tmp_path, slow_steps("a", 2, 1)).folder / "plan.json"
    fields = json.loads(plan.read_text())
    fields["run_options"]["lanes"] = "many"
    plan.write_text(json.dumps(fields))
    again = ecoshare("run", "--resume", plan.parent, "--no-report", cwd=tmp_path)
    assert again.returncode == 2, again.stderr
    (line,) = (line for line in again.stderr.splitlines() if "plan.json" in line)
    assert "plan.json: lanes: input should be a valid integer" in line and "Traceback" not in again.stderr
