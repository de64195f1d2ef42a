"""Sweeps with real trials, real logs and real samplers."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import time
from itertools import accumulate
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from ecoshare.base.attempt import Outcome
from ecoshare.core.events import JobArrived, JobExited, RunOpened
from ecoshare.record import event_log
from tests.runtime.running import SCRIPTS, Finished, alone, job_file, resume, run, start, words
from tests.warm import ecoshare, wait_for

TRIAL = str(SCRIPTS / "trial.py")
PRINTED = "val_loss={:f}"


def sweep(name: str = "s", args: tuple[str, ...] = (), **keys: Any) -> dict[str, Any]:
    job: dict[str, Any] = {key: keys.pop(key) for key in ("env", "retries", "timeout", "isolation") if key in keys}
    return {"name": name, "script": TRIAL, "args": list(args), "sweep": keys, **job}


def losses(done: Finished, name: str) -> list[bytes]:
    return re.findall(rb"val_loss=(\S+)", done.log(name))


@pytest.mark.slow
def test_a_grid_runs_every_trial_and_names_the_best(tmp_path: Path) -> None:
    grid = {"lr": [0.001, 0.1], "width": [16], "seed": [7, 8]}
    args = ("--lr", "{lr}", "--epochs=3")  # the width stands nowhere among them
    done = run(tmp_path, sweep(args=args, grid=grid, metric=PRINTED, target=1.0, env={"SEED": "{seed}"}))
    assert done.code == 0, done.stderr
    (found,) = done.summary["sweeps"]
    assert found["states"] == {"completed": 4}
    names = [f"s.{number:04d}" for number in range(4)]
    assert [job["name"] for job in done.summary["jobs"]] == names
    assert [done.job(name)["values"] for name in names] == [
        {"lr": lr, "width": "16", "seed": seed} for lr in ("0.001", "0.1") for seed in ("7", "8")
    ]
    for name in names:
        values = done.job(name)["values"]
        own = ("--lr", values["lr"], "--epochs=3", f"--width={values['width']}")
        code, printed = alone(SCRIPTS / "trial.py", own, SCRIPTS, SEED=values["seed"])
        assert code == 0 and done.log(name) == printed, "it is not what it is alone"
        assert done.job(name)["value"] == float(losses(done, name)[-1])
        assert done.job(name)["steps"] == 3
    first, second = ([done.job(name)["value"] for name in pair] for pair in (names[:2], names[2:]))
    means = {"0.001": fmean(first), "0.1": fmean(second)}
    error = sqrt(((first[0] - first[1]) ** 2 + (second[0] - second[1]) ** 2) / 4) / sqrt(2)
    assert found["configurations"] == [
        {
            "values": {"lr": lr, "width": "16"},
            "value": pytest.approx(means[lr]),
            "error": pytest.approx(error),
            "trials": names[:2] if lr == "0.001" else names[2:],
        }
        for lr in sorted(means, key=means.__getitem__)
    ]
    best = min((done.job(name)["value"], name) for name in names)
    assert (found["best"][0]["value"], found["best"][0]["name"]) == best
    reached = [name for name in names if min(map(float, losses(done, name))) <= 1.0]
    assert (found["target_trial"] in reached) if reached else found["target_trial"] is None
    assert found["energy"]["source"] == "modelled" and found["energy"]["value_j"] > 0


@pytest.mark.nightly
def test_trials_that_do_badly_end_early(tmp_path: Path) -> None:
    """Under ASHA, trials end at a rung from the fifth on that reaches it."""
    job = sweep(
        args=("--epochs", "27", "--ms", "4"),
        grid={"lr": [0.1, 8e-6, 7e-6, 6e-6, 5e-6, 4e-6, 3e-6, 2e-6]},
        metric=PRINTED,
        stop={"rule": "asha", "grace": 3},
        parallel=3,
    )
    done = run(tmp_path, job)
    assert done.code == 0, done.stderr
    states = {job["name"]: job["state"] for job in done.summary["jobs"]}
    assert states["s.0000"] == "completed"
    assert 3 <= sum(state == "pruned" for state in states.values()) <= 4, states
    for name, state in states.items():
        printed = len(losses(done, name))
        assert (printed == 27) == (state == "completed")
        assert state == "completed" or "(asha)" in done.job(name)["error"]


@pytest.mark.nightly
def test_scripts_may_report_instead_of_print(tmp_path: Path) -> None:
    done = run(tmp_path, sweep(args=("--report",), random={"lr": {"log": [1e-3, 0.1]}}, trials=3, metric="val_loss"))
    assert done.code == 0, done.stderr
    lines = (done.folder / "jobs" / "s.0000" / "reports.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [0.0, 1.0, 2.0]
    assert done.job("s.0000")["value"] == json.loads(lines[-1])["val_loss"]
    assert all(1e-3 <= float(job["values"]["lr"]) <= 0.1 for job in done.summary["jobs"])


@pytest.mark.slow
def test_reports_do_nothing_outside_a_run(tmp_path: Path) -> None:
    code, printed = alone(SCRIPTS / "trial.py", ("--report",), tmp_path)
    assert (code, printed) == (0, b"")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_unseeded_trials_differ(tmp_path: Path) -> None:
    done = run(tmp_path, sweep(args=("--unseeded",), grid={"lr": [0.1, 0.1, 0.1]}, metric=PRINTED))
    assert len({done.job(f"s.000{number}")["value"] for number in range(3)}) == 3


@pytest.mark.nightly
def test_a_trial_that_fails_is_one_failed_trial(tmp_path: Path) -> None:
    job = sweep(args=("--fails", "2"), env={"SEED": "{seed}"}, grid={"seed": [1, 2, 3]}, metric=PRINTED)
    job["args"].append("--width=8")
    done = run(tmp_path, job)
    assert done.code == 0, done.stderr
    assert {job["name"]: job["state"] for job in done.summary["jobs"]} == {
        "s.0000": "completed",
        "s.0001": "failed",
        "s.0002": "completed",
    }
    assert "fails on purpose" in done.job("s.0001")["error"]
    assert "s.0001" in done.stderr and "s.0000:" not in done.stderr


@pytest.mark.slow
def test_a_sweep_without_a_trial_that_is_through_has_failed(tmp_path: Path) -> None:
    done = run(tmp_path, sweep(args=("--nonsense",), grid={"lr": [1, 2]}))
    assert done.code == 1
    assert "1 of 1 job did not complete: s" in done.stderr


@pytest.mark.slow
def test_optuna_chooses_and_prunes(tmp_path: Path) -> None:
    job = sweep(
        args=("--epochs", "6", "--ms", "20"),  # long enough to be pruned on a busy machine, too
        optuna={
            "space": {"lr": {"log": [1e-5, 0.2]}},
            "sampler": {"TPESampler": {"n_startup_trials": 4}},
            "pruner": {"MedianPruner": {"n_startup_trials": 3}},
        },
        trials=14,
        metric=PRINTED,
    )
    done = run(tmp_path, job)
    assert done.code == 0, done.stderr
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(str(done.folder / "optuna-s.log")))
    study = optuna.load_study(study_name="s", storage=storage)
    assert len(study.trials) == 14
    words = {"completed": "COMPLETE", "pruned": "PRUNED"}
    for job in done.summary["jobs"]:
        trial = study.trials[int(job["name"][2:])]
        assert trial.state.name == words[job["state"]]
        assert repr(trial.params["lr"]) == job["values"]["lr"]
        assert job["state"] != "completed" or trial.value == job["value"]
    assert "pruned" in done.summary["sweeps"][0]["states"]


@pytest.mark.nightly
def test_a_sweep_that_is_killed_repeats_no_finished_trial(tmp_path: Path) -> None:
    """The controller is killed in the middle with SIGKILL, and the run is resumed."""
    job = sweep(
        args=("--epochs", "4", "--ms", "10"),
        random={"lr": {"log": [1e-4, 0.2]}},
        trials=24,
        metric=PRINTED,
        stop={"rule": "asha", "grace": 2},
        parallel=2,
    )
    path = job_file(tmp_path, job)
    process = start(path)
    latest = tmp_path / "ecoshare-runs" / "latest"
    wait_for(lambda: len(list(latest.glob("jobs/*/exit-1.json"))) >= 8)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    time.sleep(1.5)
    before = {path.parent.name: path.read_bytes() for path in latest.glob("jobs/*/exit-1.json")}
    assert 8 <= len(before) < 24
    done = resume(latest)
    assert done.code == 0, done.stderr
    summary = done.summary
    assert [job["name"] for job in summary["jobs"]] == [f"s.{number:04d}" for number in range(24)]
    assert {job["state"] for job in summary["jobs"]} <= {"completed", "pruned"}
    for name, record in before.items():
        assert (latest / "jobs" / name / "exit-1.json").read_bytes() == record
        assert not (latest / "jobs" / name / "exit-2.json").exists(), f"{name} ran twice"
    log = list(event_log.read(latest / "events.jsonl"))
    exits = [entry.job for entry in log if isinstance(entry, JobExited)]
    assert len(exits) == len(set(exits))
    _, again = (place for place, entry in enumerate(log) if isinstance(entry, RunOpened))
    at_once = accumulate(isinstance(entry, JobArrived) - isinstance(entry, JobExited) for entry in log[again:])
    assert max(at_once) == 2, "the trials that were cut off ran beside new ones"
    from ecoshare.jobs.trial_sampler import Random, Range

    drawn = [dict(Random({"lr": Range(1e-4, 0.2, log=True)}, 24).draw(number) or ()) for number in range(24)]
    assert [job["values"] for job in summary["jobs"]] == drawn, "other trials than without the kill"


@pytest.mark.slow
def test_exports_give_every_trial(tmp_path: Path) -> None:
    done = run(tmp_path, sweep(grid={"lr": [0.1, 0.01]}, metric=PRINTED))
    text = ecoshare("export", done.folder, "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["name"] for row in rows] == ["s.0000", "s.0001"]
    assert [json.loads(row["values"]) for row in rows] == [{"lr": "0.1"}, {"lr": "0.01"}]
    assert all(float(row["jct_s"]) > 0 and float(row["energy_j"]) > 0 and float(row["value"]) > 0 for row in rows)


@pytest.mark.nightly
def test_the_table_and_the_plan_show_the_sweep(tmp_path: Path) -> None:
    path = job_file(tmp_path, sweep(grid={"lr": [0.1, 0.01]}, metric=PRINTED, target=1e-9))
    line = [each for each in words(path) if each != "--json"]
    planned = ecoshare(*line, "--dry-run").stdout
    assert "sweep s: 2 trials by grid" in planned and "lr: 0.1|0.01" in planned
    done = ecoshare(*line, environment={**os.environ, "COLUMNS": "120"})
    assert "sweep s (grid, 2 trials): 2 completed" in done.stdout
    assert "no trial reached val_loss 1e-09" in done.stdout
    assert re.search(r"trial +val_loss +lr +steps", done.stdout)
    assert "s: 2 of 2 trials ended" in done.stderr or "starts" not in done.stderr


@pytest.mark.nightly
def test_what_ends_a_run_leaves_its_trials_for_later(tmp_path: Path) -> None:
    job = sweep(args=("--epochs", "400", "--ms", "5"), grid={"lr": [0.1, 0.2]}, metric=PRINTED)
    process = start(job_file(tmp_path, job))
    wait_for(lambda: list((tmp_path / "ecoshare-runs").glob("latest/jobs/*/stdout.log")))
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err, err
    summary = json.loads(out)
    assert summary["state"] == "interrupted" and summary["sweeps"][0]["states"] == {"cancelled": 2}
    ends = [
        entry
        for entry in event_log.read(tmp_path / "ecoshare-runs" / "latest" / "events.jsonl")
        if isinstance(entry, JobExited)
    ]
    assert {end.outcome for end in ends} == {Outcome.STOPPED}
