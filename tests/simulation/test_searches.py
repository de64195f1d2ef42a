"""Sweeps in virtual time: the same core draws, stops and pauses trials as in a live run."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ecoshare.base.attempt import Outcome
from ecoshare.base.job_spec import StoppingSpec
from ecoshare.cli.app import app
from ecoshare.core.commands import AskSampler, DropJob, KillJob
from ecoshare.core.events import Config, JobArrived, JobExited, Reported, SweepOpened
from ecoshare.errors import UsageError
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.costs import NO_COSTS, Costs
from ecoshare.simulation.traces.generate import REDUCTION, SEARCH_KINDS, STEP_ITERATIONS, STEPS, search
from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob, TraceSweep, TraceTrial
from ecoshare.simulation.world import World
from tests.simulation.simulating import simulate

GPU = GPUS["v100"]

WAYS = [("fifo", 1, 1), ("srtf", 1, 1), ("tiresias", 1, 1), ("fair", 1, 4), ("equal", 2, 1), ("fluid", 2, 1)]
"""Policy, number of lanes, and number of jobs in a lane."""


class Run:
    """Search with all events and commands."""

    def __init__(self, trace: Trace, policy: str, lanes: int, places: int, gpus: int = 4, costs: Costs = NO_COSTS):
        config = Config(policy, lanes, places, preempt=lanes == places == 1)
        found = simulate(trace, Cluster(1, gpus, GPU), config, World(GPU), costs)
        self.result, self.log = found.result, found.log

    def reported(self) -> dict[str, int]:
        """Steps that each trial has done."""
        steps: Counter[str] = Counter()
        for event, _ in self.log:
            if isinstance(event, Reported):
                assert event.step == steps[event.job] + 1, "each value is told once, in order"
                steps[event.job] = event.step
        return dict(steps)

    def iterations(self) -> Counter[str]:
        """Iterations of each trial, over all attempts."""
        done: Counter[str] = Counter()
        for event, _ in self.log:
            if isinstance(event, JobExited):
                done[event.job] += event.usage.iterations
        return done


def rungs_by_hand(sweep: TraceSweep) -> dict[str, int]:
    """Steps that each trial of a sweep by halving does, from its curves alone."""
    assert sweep.early_stopping is not None
    step, trials, done = sweep.early_stopping.grace, list(sweep.trials), {}
    while step < STEPS:
        done.update({trial.job.name: step for trial in trials})
        order = sorted(trials, key=lambda trial: trial.curve[step - 1])
        trials = order[: max(1, len(order) // REDUCTION)]
        step *= REDUCTION
    return done | {trial.job.name: STEPS for trial in trials}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_survivors_of_halving_depend_on_no_policy(way: tuple[str, int, int]) -> None:
    """All trials wait for each other, so times decide nothing, and each trial does its steps once."""
    trace = search("halving", 27, 3, gpus=4)
    run = Run(trace, *way, costs=Costs(2.0, 1.0, 3.0))
    (sweep,) = trace.sweeps
    assert run.reported() == rungs_by_hand(sweep)
    assert run.iterations() == {name: steps * STEP_ITERATIONS for name, steps in run.reported().items()}
    assert Counter(each.name for each in run.result.finished) == Counter(trial.job.name for trial in sweep.trials)


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[] if way in WAYS[2:4] else pytest.mark.slow) for way in WAYS], ids=str
)
@pytest.mark.parametrize("kind", SEARCH_KINDS)
def test_every_kind_of_search_is_in_order_in_every_way(kind: str, way: tuple[str, int, int]) -> None:
    assert Run(search(kind, 9, 1, gpus=4), *way).result.finished


@pytest.mark.nightly
def test_a_trial_that_asha_prunes_ends_at_a_rung_with_better_trials() -> None:
    trace = search("asha", 60, 0, gpus=4)
    run = Run(trace, "fluid", 2, 1)
    curves = {trial.job.name: trial.curve for sweep in trace.sweeps for trial in sweep.trials}
    at_rung: dict[int, list[float]] = defaultdict(list)
    pruned: set[str] = set()
    for event, commands in run.log:
        if isinstance(event, Reported) and event.step in (1, 3, 9, 27):
            at_rung[event.step].append(event.value)
            assert event.value == curves[event.job][event.step - 1]
            values = sorted(at_rung[event.step])
            good = values.index(event.value) < max(1, len(values) // REDUCTION)
            stopped = [each.job for each in commands if isinstance(each, KillJob) and each.pruned]
            assert stopped == ([] if good else [event.job])
            pruned.update(stopped)
    ends = {event.job: event.outcome for event, _ in run.log if isinstance(event, JobExited)}
    assert {name for name, outcome in ends.items() if outcome is Outcome.PRUNED} == pruned
    assert 30 < len(pruned) < 60 == len(ends)
    assert all(run.reported()[name] == STEPS for name in ends if name not in pruned)


def test_no_more_trials_are_there_at_once_than_may_be() -> None:
    run = Run(search("asha", 60, 0, gpus=2), "fifo", 1, 1, gpus=2)
    there: set[str] = set()
    asked = 0
    for event, commands in run.log:
        if isinstance(event, JobArrived):
            there.add(event.job.name)
        elif isinstance(event, JobExited) and event.outcome is not Outcome.STOPPED:
            there.discard(event.job)
        asked += sum(isinstance(each, AskSampler) for each in commands)
        assert len(there) <= 4
    assert asked == 61, "and one question too many, since only the sampler knows that it has no more"


@pytest.mark.slow
def test_brackets_follow_each_other_or_not() -> None:
    for kind, apart in (("bohb", True), ("bohb-parallel", False)):
        run = Run(search(kind, 9, 0, gpus=4), "fluid", 2, 1)
        opened = [event.at_s for event, _ in run.log if isinstance(event, SweepOpened)]
        assert len(opened) == 5 and (len(set(opened)) == 5) == apart
    last: dict[str, float] = {}
    for event, commands in Run(search("bohb", 9, 0, gpus=4), "fluid", 2, 1).log:
        if isinstance(event, SweepOpened):
            assert event.at_s >= max(last.values(), default=0.0), "all of the bracket before are over"
        for name in [each.job for each in commands if isinstance(each, DropJob)]:
            last[name] = event.at_s
        if isinstance(event, JobExited):
            last[event.job] = event.at_s


def test_what_pausing_costs_is_lost() -> None:
    """The faster and better of two trials on two GPUs pauses until both have reached the rung."""
    jobs = [TraceJob(name, "c", 0.0, (Phase(90, each_s),)) for name, each_s in (("fast", 0.5), ("slow", 1.0))]
    trials = tuple(TraceTrial(job, (value,) * 9) for job, value in zip(jobs, (0.1, 0.2), strict=True))
    sweep = TraceSweep("s", trials, 2, StoppingSpec("halving", 3, 2, 9))
    run = Run(Trace("made", "made", (), "", (sweep,)), "fifo", 1, 1, gpus=2, costs=Costs(1.0, 2.0, 4.0))
    ends = {each.name: each.finish_s for each in run.result.finished}
    assert ends["slow"] == pytest.approx(1.0 + 30.0 + 2.0), "started, three steps of ten seconds, stopped"
    # Stopped long before; at step 6 it would pause again, and is alone.
    assert ends["fast"] == pytest.approx(31.0 + 1.0 + 4.0 + 60 * 0.5)
    assert run.result.preemptions == 1


def test_trials_and_jobs_run_beside_each_other() -> None:
    trace = search("halving", 9, 0, gpus=2)
    job = TraceJob("other", "c", 5.0, (Phase(10, 60.0),))
    run = Run(Trace(trace.file, trace.kind, (job,), "", trace.sweeps), "fluid", 2, 1, gpus=2)
    assert {"other", "halving-0"} < {each.name for each in run.result.finished} and len(run.result.finished) == 10


def test_the_same_seed_gives_the_same_search_and_another_one_another() -> None:
    for kind in SEARCH_KINDS:
        assert search(kind, 9, 1, gpus=4) == search(kind, 9, 1, gpus=4) != search(kind, 9, 2, gpus=4)


def test_the_command_line_makes_searches() -> None:
    line = ("--generate", "halving", "--jobs", "9", "--gpus", "4", "--policy", "fifo,fluid", "--lanes", "2", "--json")
    done = CliRunner().invoke(app, ["simulate", *line])
    assert done.exit_code == 0
    said = json.loads(done.stdout)
    assert said["trace"]["jobs"] == 9
    fifo, fluid = said["policies"]
    assert fifo["jobs"] == fluid["jobs"] == 9 and fluid["makespan_s"] < fifo["makespan_s"]


def test_a_search_cannot_be_written_as_a_file_of_jobs(tmp_path: Path) -> None:
    line = ["simulate", "--generate", "asha", "--convert", str(tmp_path / "file.csv")]
    with pytest.raises(UsageError, match="cannot say when trials pause"):
        CliRunner().invoke(app, line, catch_exceptions=False)
    assert not list(tmp_path.iterdir())
