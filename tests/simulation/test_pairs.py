"""Speeds of two jobs beside each other: read from a table, used in the simulator, and by packing on probation."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ecoshare.cli.app import app
from ecoshare.core.commands import KillJob
from ecoshare.core.events import Config, IterationsDone
from ecoshare.core.placement.colocation_estimates import BESIDE
from ecoshare.errors import UsageError
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.costs import NO_COSTS, Costs
from ecoshare.simulation.result import SimulationResult
from ecoshare.simulation.traces.any_trace import read as read_trace
from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob
from ecoshare.simulation.traces.own import write
from ecoshare.simulation.world import IN_TURN, Pairs, World, read
from ecoshare.testing.policy_contract import PolicyContract
from tests.simulation.simulating import Log, made, simulate
from tests.simulation.trace_files import data, needs_data

GPU = GPUS["v100"]
ONE, TWO = "('one', 1)", "('two', 1)"


def table(folder: Path, **more: object) -> Path:
    path = folder / "pairs.json"
    rows = {
        ONE: {"null": 10.0, TWO: [8.0, 1.0], ONE: [0.0, 0.0]},
        TWO: {"null": 4.0, ONE: [1.0, 8.0], TWO: [5.0, 5.0]},
        **more,
    }
    path.write_text(json.dumps({"v100": rows}))
    return path


def job(name: str, job_class: str, arrival_s: float = 0.0, service_s: float = 1000.0, **more: Any) -> TraceJob:
    return TraceJob(name, job_class, arrival_s, (Phase(1000, service_s / 1000),), **more)


def pairs(**speeds: float) -> Pairs:
    """Speeds of classes of one letter: `ab=0.4` is the speed of a beside b, and of b beside a."""
    known = {}
    for pair, speed in speeds.items():
        one, other = tuple(pair)
        known[(one, 1), (other, 1)] = known[(other, 1), (one, 1)] = speed
    return Pairs("made", known)


def run(
    jobs: list[TraceJob], policy: str, known: Pairs | None, gpus: int = 1, **more: Any
) -> tuple[SimulationResult, Log]:
    costs = more.pop("costs", NO_COSTS)
    config = Config(policy, more.pop("lanes", 2), more.pop("places", 1), **more)
    found = simulate(made(jobs), Cluster(1, gpus, GPU), config, World(GPU, pairs=known), costs)
    return found.result, found.log


def parted(log: Log) -> list[str]:
    return [each.job for _, commands in log for each in commands if isinstance(each, KillJob)]


def test_a_table_gives_the_speed_of_each_over_that_alone(tmp_path: Path) -> None:
    found = read(table(tmp_path), "v100")
    one, two = job("1", "one"), job("2", "two")
    assert found.speed(one, two) == 0.8
    assert found.speed(two, one) == 0.25
    assert found.speed(one, one) == IN_TURN, "they do not fit beside each other"
    assert found.speed(two, two) == 1.0, "no job is faster beside another than alone"
    assert found.speed(one, job("3", "three")) is None
    assert found.speed(one, job("2", "two", gpus=2)) is None


def test_bare_types_are_of_one_gpu(tmp_path: Path) -> None:
    path = tmp_path / "oracle.json"
    path.write_text(json.dumps({"v100": {"one": {"null": 10.0, "two": [5.0, 1.0]}}}))
    assert read(path, "v100").speed(job("1", "one"), job("2", "two")) == 0.5


@pytest.mark.parametrize("pair", [[1.0], [1.0, -1.0], [1.0, True], "1, 2", [1.0, None]])
def test_what_is_no_pair_is_told(tmp_path: Path, pair: object) -> None:
    path = table(tmp_path, **{"('three', 1)": {"null": 1.0, ONE: pair}})
    with pytest.raises(UsageError, match=re.escape(f"('three', 1) beside {ONE} is {pair!r}")):
        read(path, "v100")


@pytest.mark.parametrize(
    "key", ["(1, 2, 3)", "7", "('x', 1e999)", "('x', [])", "(" * 300, "('x', '" + "9" * 5000 + "')", ""]
)
def test_any_key_is_a_type_of_job(tmp_path: Path, key: str) -> None:
    path = table(tmp_path, **{key: {"null": 1.0, ONE: [0.5, 0.5]}})
    assert read(path, "v100").known


@pytest.mark.parametrize("speed", [10**400, -(10**400), 1e999, float("nan"), True, "7", None, []])
def test_what_is_no_speed_is_told(tmp_path: Path, speed: object) -> None:
    path = table(tmp_path, **{"('three', 1)": {"null": 1.0, ONE: [speed, 1.0]}})
    with pytest.raises(UsageError, match="beside"):
        read(path, "v100")


def test_a_table_without_pairs_is_told(tmp_path: Path) -> None:
    path = tmp_path / "alone.json"
    path.write_text(json.dumps({"v100": {ONE: {"null": 1.0}}}))
    with pytest.raises(UsageError, match="has no pairs of jobs on 'v100'"):
        read(path, "v100")


def test_the_worst_neighbour_decides_and_power_goes_by_speed() -> None:
    a, b, c, d = (job(name, name) for name in "abcd")
    world = World(GPU, pairs=pairs(ab=0.5, ac=0.9), active_w={"a": 40.0, "b": 20.0})
    assert world.speed(a, ["g"], []) == 1.0
    assert world.speed(a, ["g"], [b]) == 0.5
    assert world.speed(a, ["g"], [c, b]) == 0.5
    assert world.speed(a, ["g"], [d]) == BESIDE, "nothing is known of the two"
    assert world.device_watts([a, b]) == pytest.approx(0.5 * 40.0 + 0.5 * 20.0)
    assert world.device_watts([c, d, c]) == GPU.limit_w - GPU.idle_w, "no more than the board may draw"


def test_two_that_slow_each_other_down_are_parted_once() -> None:
    jobs = [job("a", "a"), job("b", "b", 10.0), job("b2", "b", 20.0)]
    result, log = run(jobs, "gandiva", pairs(ab=0.4, bb=0.4))
    assert parted(log) == ["b", "b2"], "a and b are parted, then b and b; no pair is tried again"
    always, _ = run(jobs, "pack", pairs(ab=0.4, bb=0.4))
    never, _ = run(jobs, "fifo", None, lanes=1)
    assert never.makespan_s < result.makespan_s < 1.1 * never.makespan_s, "trials cost, not much"
    assert always.makespan_s > 1.15 * never.makespan_s


def test_two_that_gain_stay() -> None:
    jobs = [job("a", "a"), job("b", "b", 10.0)]
    result, log = run(jobs, "gandiva", pairs(ab=0.8))
    assert parted(log) == []
    assert result.makespan_s == pytest.approx(10.0 + 990.0 / 0.8 + (1000.0 - 990.0))


def test_a_pair_is_judged_by_what_it_does_beside_each_other() -> None:
    """The first job was alone for hours, so the mean over its attempt hardly changes."""
    jobs = [job("a", "a", service_s=100_000.0), job("b", "b", 50_000.0, service_s=10_000.0)]
    _, log = run(jobs, "gandiva", pairs(ab=0.4))
    [(at_s, name)] = [
        (event.at_s, each.job) for event, commands in log for each in commands if isinstance(each, KillJob)
    ]
    assert name == "b" and 50_000.0 < at_s < 50_000.0 + 4 * 50 * 100.0 / 0.4, "soon after 50 iterations of 100 s"


@given(
    jobs=st.lists(
        st.tuples(st.sampled_from("abc"), st.floats(0.0, 300.0), st.floats(1.0, 300.0), st.sampled_from([1, 1, 1, 2])),
        min_size=1,
        max_size=12,
    ),
    speeds=st.lists(st.floats(0.2, 1.0), min_size=6, max_size=6),
    places=st.integers(1, 3),
    lanes=st.integers(1, 3),
    announced=st.booleans(),
)
def test_jobs_of_any_kind_are_tried_beside_each_other(
    jobs: list[tuple[str, float, float, int]], speeds: list[float], places: int, lanes: int, announced: bool
) -> None:
    known = pairs(**dict(zip(("aa", "ab", "ac", "bb", "bc", "cc"), speeds, strict=True)))
    all_jobs = [
        job(str(place), job_class, arrival_s, service_s, gpus=gpus, announced=announced)
        for place, (job_class, arrival_s, service_s, gpus) in enumerate(jobs)
    ]
    costs = Costs(0.1, 0.2, 0.3, 0.001)
    _, log = run(all_jobs, "gandiva", known, gpus=2, lanes=lanes, places=places, costs=costs)
    assert len(parted(log)) <= 6 * 2, "each pair of classes fails once on each device, at most"


def test_reports_on_neighbours_are_made_on_request_and_do_not_grow_with_their_length() -> None:
    def told(policy: str, service_s: float) -> int:
        jobs = [job("a", "a", service_s=service_s), job("b", "b", service_s=service_s)]
        return sum(isinstance(event, IterationsDone) for event, _ in run(jobs, policy, pairs(ab=0.8))[1])

    assert told("fair", 10_000.0) == 0
    assert 0 < told("gandiva", 1_000.0) < told("gandiva", 1_000_000.0) < 60


def test_the_option_is_read_and_refused_where_it_is_of_no_use(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    jobs = tuple(job(f"j{number}", job_class) for number, job_class in enumerate(["one", "one", "two"]))
    write(Trace("made", "made", jobs, ""), trace)
    line = ["simulate", str(trace), "--pairs", str(table(tmp_path)), "--policy", "fair", "--json", "--no-costs"]
    done = CliRunner().invoke(app, [*line, "--lanes", "2"])
    assert done.exit_code == 0, done.output
    [row] = json.loads(done.stdout)["policies"]
    assert row["makespan_s"] == pytest.approx(2000.0 + 1000.0), "two take turns, the third is alone"
    refused = CliRunner().invoke(app, line)
    assert refused.exit_code != 0 and isinstance(refused.exception, UsageError | SystemExit)


@needs_data
@pytest.mark.parametrize("gpus", [2, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 4))])
def test_trials_are_no_worse_than_packing_always_or_never(gpus: int) -> None:
    """Thirty jobs of Gavel, with pairs that gain by half on average; a fifth of the pairs lose."""
    speeds = data("gavel", "simulation_throughputs.json")
    trace = read_trace(data("gavel", "30_jobs_1gpu.trace"), speeds=speeds)
    known = read(speeds, "v100")

    def result(policy: str, lanes: int) -> SimulationResult:
        config, world = Config(policy, lanes, 1), World(GPU, pairs=known)
        return simulate(trace, Cluster(1, gpus, GPU), config, world, Costs()).result

    trials, always, never = result("gandiva", 2), result("pack", 2), result("fifo", 1)
    assert trials.makespan_s < always.makespan_s < never.makespan_s
    assert trials.jcts_s.mean() < always.jcts_s.mean() < never.jcts_s.mean()
    assert trials.preemptions > 0, "packings were undone"


@needs_data
def test_one_gpu_is_about_as_well_used_as_by_gavels_own_gandiva() -> None:
    """The paper's simulator draws pairs at random, and has rounds."""
    speeds = data("gavel", "simulation_throughputs.json")
    trace = read_trace(data("gavel", "30_jobs_1gpu.trace"), speeds=speeds)
    theirs = json.loads(data("gavel", "results_1gpu.json").read_text())["runs"]["gandiva"]
    config, world = Config("gandiva", 2, 1), World(GPU, pairs=read(speeds, "v100"))
    ours = simulate(trace, Cluster(1, 1, GPU), config, world, Costs()).result
    assert ours.makespan_s == pytest.approx(theirs["total_duration_s"], rel=0.05)


@pytest.mark.nightly
class TestContractWithTrials(PolicyContract):
    """Trials are short, and the default gain of two beside each other, 1.36, is not enough."""

    policy = "gandiva"
    options = (("trial", 3.0), ("margin", 0.5))

    def test_packings_are_undone(self) -> None:
        """Else the other assertions would not concern packing."""
        assert any("slower beside each other" in line for line in self.decisions())
