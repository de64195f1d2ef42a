"""A job that gives no `iterations:` takes those of completed jobs of its class with the same arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ecoshare
from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.device import DeviceInfo
from ecoshare.core.commands import Command, StartJob
from ecoshare.core.events import Event, JobExited
from ecoshare.jobs.load import load
from ecoshare.knowledge.iteration_store import IterationCount, IterationStore, JobArguments, LearnedIterations
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.knowledge.profiles_folder import ITERATIONS
from ecoshare.record.run_history import JobHistory
from ecoshare.record.run_view import RunView
from ecoshare.runtime.nodes import run_host
from ecoshare.runtime.planning.learning import teach_iterations
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.planning.planned_job import PlannedJob
from tests.knowledge.classes import profile
from tests.planning import planned as made_plan
from tests.runtime.running import check, slow_steps
from tests.warm import ecoshare as command
from tests.warm import spawned

DEVICE = DeviceInfo("cpu", "cpu", "cpu", "A processor", None, 1 << 40, 8)

AGAIN = """
import sys
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(5):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
sys.exit("--resume" not in sys.argv)
"""
"""Script that trains for five steps, and fails unless it is started with `--resume`."""


def planned(folder: Path, *jobs: dict[str, Any], policy: str = "srtf", **options: Any) -> Plan:
    """Plan of jobs, of the script train.py unless they say otherwise, with the store in the folder."""
    (folder / "train.py").touch()
    path = folder / "jobs.yaml"
    path.write_text(json.dumps({"version": 1, "jobs": [{"script": "train.py", **job} for job in jobs]}))
    return made_plan(load(path), (DEVICE,), policy=policy, **{"store": ProfileStore(folder / "profiles"), **options})


def finished(job: PlannedJob, *attempts: tuple[Outcome, int] | None) -> JobHistory:
    """History of a job with an outcome and iterations of each attempt; None for an attempt that was cut off."""
    history = JobHistory(job.spec.name)
    history.arrived(job.spec, 0.0)
    for number, end in enumerate(attempts, start=1):
        history.asked(StartJob(number, job.spec.name, number, (0,), 0))
        if end is not None:
            outcome, iterations = end
            usage = Usage(iterations=iterations, eval_iterations=3)
            history.exited(JobExited(float(number), job.spec.name, number, outcome, 0, "", usage))
    return history


def taught(plan: Plan, *runs: dict[str, tuple[Outcome, int]]) -> None:
    """Add the jobs of a plan to the store, as runs would in which each had one attempt."""
    jobs = {job.spec.name: job for job in plan.jobs}
    assert plan.profiles is not None
    for number, ends in enumerate(runs):
        history = {name: finished(jobs[name], end) for name, end in ends.items()}
        assert teach_iterations(plan.jobs, history, f"run{number}", ProfileStore(plan.profiles)) == []


DONE, FAILED = Outcome.COMPLETED, Outcome.FAILED


def iterations(plan: Plan) -> dict[str, int | None]:
    return {job.spec.name: job.spec.iterations for job in plan.jobs}


def test_a_plan_takes_the_median_and_says_where_it_comes_from(tmp_path: Path) -> None:
    short, long = {"args": ["--epochs", 3]}, {"args": ["--epochs", 30]}
    jobs = ({"name": "a", **short}, {"name": "b", **short}, {"name": "c", **long})
    first = planned(tmp_path, *jobs)
    assert iterations(first) == {"a": None, "b": None, "c": None}
    taught(first, {"a": (DONE, 800), "b": (DONE, 1600), "c": (FAILED, 9000)}, {"a": (DONE, 1200)})
    again = planned(tmp_path, *jobs)
    assert iterations(again) == {"a": 1200, "b": 1200, "c": None}
    assert again.jobs[0].learned == LearnedIterations(1200, 3, 800, 1600)
    lines = [note for note in again.notes if "iterations" in note]
    assert lines == [
        "iterations of a, b: 1,200 each, median of 3 completed jobs (800 to 1,600)",
        "policy srtf: 1 of 3 jobs gives no `iterations:`, and no earlier run tells them (c); "
        "it is ranked by the time that each has had",
    ]
    listed = again.as_dict()["jobs"]
    assert [job["iterations"] for job in listed] == [1200, 1200, None]
    assert listed[0]["iterations_learned"] == {"iterations": 1200, "jobs": 3, "fewest": 800, "most": 1600}
    assert listed[2]["iterations_learned"] is None


def test_many_learned_numbers_are_told_in_a_few_lines(tmp_path: Path) -> None:
    jobs = [{"name": f"j{n}", "args": [n]} for n in range(1, 8)]
    taught(planned(tmp_path, *jobs), {f"j{n}": (DONE, n) for n in range(1, 8)})
    plan = planned(tmp_path, *jobs)
    assert set(iterations(plan).values()) == set(range(1, 8))
    assert "iterations of 4 more jobs are learned from completed jobs, too" in plan.notes
    assert len([note for note in plan.notes if note.startswith("iterations of j")]) == 3


def test_a_given_number_wins_and_a_plan_without_profiles_learns_nothing(tmp_path: Path) -> None:
    job = {"name": "a", "args": ["x"]}
    taught(planned(tmp_path, {**job, "iterations": 1000}), {"a": (DONE, 40)})
    assert iterations(planned(tmp_path, job)) == {"a": 40}
    given = planned(tmp_path, {**job, "iterations": 1000})
    assert (iterations(given), given.jobs[0].learned, given.notes) == ({"a": 1000}, None, ())
    for options in ({"store": None}, {"learn": False}):
        assert iterations(planned(tmp_path, job, **options)) == {"a": None}


def test_the_turn_time_follows_from_the_learned_number(tmp_path: Path) -> None:
    """Else policies would not know how long the whole job is, though the profile has the time of an iteration."""
    first = planned(tmp_path, {"name": "a"})
    (job,) = first.jobs
    ProfileStore(tmp_path / "profiles").save(
        profile(job.spec.job_class).model_copy(update={"origin": job.job_class.origin})
    )
    taught(first, {"a": (DONE, 50)})
    (known,) = planned(tmp_path, {"name": "a"}).jobs
    assert known.spec.service_s == pytest.approx(50 * 0.1)


def test_a_class_of_many_arguments_keeps_them_apart(tmp_path: Path) -> None:
    """`class:` says that iterations cost the same, not that there are equally many."""
    secret = {"TOKEN": "hunter2"}
    jobs = (
        {"name": "a", "args": ["3"], "class": "k"},
        {"name": "b", "args": ["30"], "class": "k"},
        {"name": "c", "args": ["3"], "class": "k", "env": secret},
        {"name": "d", "script": "other.py", "args": ["3"], "class": "k"},
    )
    (tmp_path / "other.py").touch()
    first = planned(tmp_path, *jobs)
    assert len({job.spec.job_class for job in first.jobs}) == 1
    taught(first, {"a": (DONE, 30), "b": (DONE, 300)})
    assert iterations(planned(tmp_path, *jobs)) == {"a": 30, "b": 300, "c": None, "d": None}
    taught(first, {"c": (DONE, 7), "d": (DONE, 8)})
    assert iterations(planned(tmp_path, *jobs)) == {"a": 30, "b": 300, "c": 7, "d": 8}
    (stored,) = (tmp_path / "profiles" / ITERATIONS).iterdir()
    assert "hunter2" not in stored.read_text()


@pytest.mark.parametrize(
    ("attempts", "count", "continued"),
    [
        ([(DONE, 40)], 40, 40),
        ([(DONE, 0)], None, None),
        ([(FAILED, 40)], None, None),
        ([(Outcome.PRUNED, 40)], None, None),
        ([(Outcome.STOPPED, 40)], None, None),
        ([(FAILED, 0), (DONE, 40)], 40, 40),
        ([(FAILED, 10), (DONE, 40)], None, 50),
        ([(Outcome.STOPPED, 10), (Outcome.LOST, 5), (DONE, 40)], None, 55),
        ([None, (DONE, 40)], None, None),
        ([(DONE, 40), None], None, None),
    ],
)
def test_only_completed_jobs_count_over_all_attempts_that_continue(
    tmp_path: Path,
    attempts: list[tuple[Outcome, int] | None],
    count: int | None,
    continued: int | None,
) -> None:
    """Without `resume_args`, an attempt may have begun again, or not: then nothing is known."""
    jobs = ({"name": "a", "args": ["a"]}, {"name": "b", "args": ["b"], "resume_args": ["--resume"]})
    plan = planned(tmp_path, *jobs)
    history = {job.spec.name: finished(job, *attempts) for job in plan.jobs}
    assert teach_iterations(plan.jobs, history, "run", ProfileStore(tmp_path / "profiles")) == []
    assert iterations(planned(tmp_path, *jobs)) == {"a": count, "b": continued}


def test_trials_neither_teach_nor_learn(tmp_path: Path) -> None:
    """Their values may be their number of epochs."""
    job = {"name": "s", "args": ["--epochs", "{epochs}"], "sweep": {"grid": {"epochs": [3, 30]}}}
    (sweep,) = planned(tmp_path, job).sweeps
    trials = [sweep.trial(number, (("epochs", value),)) for number, value in enumerate(("3", "30"))]
    history = {trial.spec.name: finished(trial, (DONE, 40)) for trial in trials}
    assert teach_iterations(trials, history, "run", ProfileStore(tmp_path / "profiles")) == []
    assert not (tmp_path / "profiles" / ITERATIONS).exists()
    # Not even from a count that stands under the arguments of the sweep.
    own = JobArguments.of(sweep.template.job_class.origin, "")
    count = own, IterationCount(iterations=40, run="run", job="s")
    store = IterationStore(tmp_path / "profiles")
    store.add(sweep.template.spec.job_class, sweep.template.job_class.origin, [count])
    (again,) = planned(tmp_path, job).sweeps
    assert again.template.spec.iterations is None and again.trial(0, (("epochs", "3"),)).spec.iterations is None


def test_a_store_that_cannot_be_written_or_read_is_told(tmp_path: Path) -> None:
    """The run is over, and its result must not be lost with the counts."""
    plan = planned(tmp_path, {"name": "a"})
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / ITERATIONS).touch()
    history = {"a": finished(plan.jobs[0], (DONE, 40))}
    *_, note = teach_iterations(plan.jobs, history, "run", ProfileStore(tmp_path / "profiles"))
    assert note.startswith("the iterations of completed jobs are not kept: cannot write")
    (tmp_path / "profiles" / ITERATIONS).unlink()
    taught(plan, {"a": (DONE, 40)})
    (path,) = (tmp_path / "profiles" / ITERATIONS).iterdir()
    path.write_text("{")
    damaged = planned(tmp_path, {"name": "a"})
    assert iterations(damaged) == {"a": None} and any("iteration counts" in note for note in damaged.notes)


class Watches:
    """Display that keeps the iterations and the total of each job that was shown."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, int, int | None, bool]] = set()

    def event(self, event: Event, commands: list[Command]) -> None:
        """Do nothing."""

    def is_due(self, at_s: float) -> bool:
        """Always."""
        return True

    def show(self, view: RunView) -> None:
        """Note what is shown."""
        self.seen |= {(job.name, job.iterations, job.total, job.is_learned) for job in view.jobs}

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.slow
def test_runs_teach_plans_and_a_job_runs_on_past_its_learned_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_host, "Spawned", spawned)
    (tmp_path / "again.py").write_text(AGAIN)
    again = {"name": "again", "script": "again.py", "retries": 1, "resume_args": ["--resume"]}
    fails = {"name": "fails", "script": "again.py", "args": ["x"]}
    jobs = {"version": 1, "jobs": [slow_steps("long", 30, 10), slow_steps("new", 20, 2), again, fails]}
    fields: dict[str, Any] = {"device": "cpu", "policy": "srtf", "profiles": "profiles"}

    def plan() -> Plan:
        return ecoshare.plan(jobs, **fields)

    (long, *_) = plan().jobs
    told_too_few = [(JobArguments.of(long.job_class.origin, ""), IterationCount(iterations=4, run="old", job="a"))]
    IterationStore(Path("profiles")).add(long.spec.job_class, long.job_class.origin, told_too_few)
    assert iterations(plan()) == {"long": 4, "new": None, "again": None, "fails": None}

    display = Watches()
    result = ecoshare.run(jobs, **fields, progress=lambda: display)
    check(result.folder)
    assert {job.name: (job.state, job.iterations) for job in result.jobs} == {
        "long": ("completed", 30),
        "new": ("completed", 20),
        "again": ("completed", 5),
        "fails": ("failed", 5),
    }
    shown = [(done, total) for name, done, total, is_learned in display.seen if name == "long" and is_learned]
    assert any(done > 4 for done, _ in shown), "the job is seen past its learned number"
    assert all(total == (4 if done <= 4 else None) for done, total in shown)

    assert not ecoshare.resume(result.folder).ran, "nothing is left, and nothing counts twice"
    later = plan()
    assert iterations(later) == {"long": 17, "new": 20, "again": 10, "fails": None}
    assert later.notes[:3] == (
        "iterations of long: 17, median of 2 completed jobs (4 to 30)",
        "iterations of new: 20, as in 1 completed job",
        "iterations of again: 10, as in 1 completed job",
    )
    Path("jobs.yaml").write_text(json.dumps(jobs))
    line = ("run", "jobs.yaml", "--device", "cpu", "--policy", "srtf", "--profiles", "profiles", "--dry-run")
    printed = command(*line, cwd=tmp_path)
    assert later.notes[0] in printed.stderr and "~17" in printed.stdout
