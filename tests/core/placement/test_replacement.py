"""Replacement: exchanges of lanes that pay, and jobs that move to the lanes that were planned for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ecoshare.base.attempt import Outcome
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.commands import KillJob, StartJob
from ecoshare.core.events import Config
from ecoshare.core.placement.strategies.round_placement import HeldLanes, Placed, Replacement
from ecoshare.core.records import Job, JobState, Lane, LaneState
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.world import World
from ecoshare.testing import policy_contract
from ecoshare.testing.policy_contract import PolicyContract
from ecoshare.testing.virtual_driver import ScriptedJob, VirtualDriver
from tests.core.stepping import Run

GIB = 1 << 30


def lane(number: int, node: str = "a") -> Lane:
    return Lane(number, Device(f"d{number}", node, 8 * GIB), 1, 0, LaneState.OPEN)


def placed(
    lanes: Sequence[int], weight_s: float, slow: Sequence[float], runs: bool = True, nodes: int | None = None
) -> Placed:
    spec = JobSpec(f"job{lanes}", "any", gpus=len(lanes), nodes=nodes, movable=True)
    before = frozenset(lanes) if runs else frozenset()
    return Placed(Job(spec, 0.0), frozenset(lanes), before, weight_s, dict(enumerate(slow)))


def improved(jobs: list[Placed], nodes: str, move_s: float, across: float = 1.0) -> list[set[int]]:
    Replacement(jobs, [lane(number, node) for number, node in enumerate(nodes)], across, move_s).improve()
    return [set(each.lanes) for each in jobs]


@pytest.mark.parametrize(("move_s", "found"), [(19.0, [{1}]), (21.0, [{0}])])
def test_a_job_moves_to_a_free_lane_if_it_gains_more_than_the_move_costs(move_s: float, found: object) -> None:
    assert improved([placed([0], 100.0, [1.2, 1.0])], "aa", move_s) == found


@pytest.mark.parametrize(("move_s", "found"), [(9.0, [{1}, {0}]), (11.0, [{0}, {1}])])
def test_both_jobs_of_an_exchange_pay_for_their_move(move_s: float, found: object) -> None:
    """One gains 30 s, the other loses 10 s."""
    jobs = [placed([0], 100.0, [1.3, 1.0]), placed([1], 100.0, [1.1, 1.0])]
    assert improved(jobs, "aa", move_s) == found


def test_a_gang_changes_all_its_slow_lanes_at_once() -> None:
    """One faster lane alone would gain nothing."""
    gang = placed([0, 1], 100.0, [1.5, 1.5, 1.0, 1.1])
    assert improved([gang], "abcd", 30.0) == [{2, 3}]
    assert gang.slowness == 1.1 and gang.moves


def test_a_gang_leaves_its_node_only_for_lanes_that_are_faster_by_more_than_the_network_costs() -> None:
    slow = [1.5, 1.5, 1.0, 1.1]
    for across, nodes, found in ((1.2, "aabc", [{2, 3}]), (1.7, "aabc", [{0, 1}]), (1.7, "aabb", [{2, 3}])):
        assert improved([placed([0, 1], 100.0, slow)], nodes, 10.0, across) == found
    assert improved([placed([0, 1], 100.0, slow, nodes=1)], "aabc", 10.0) == [{0, 1}]


def _cost_s(jobs: Sequence[Placed], lanes: Sequence[set[int]], move_s: float) -> float:
    return sum(
        each.weight_s * max(each.slow[number] for number in where)
        + move_s * (bool(each.before) and where != each.before)
        for each, where in zip(jobs, lanes, strict=True)
    )


SLOW = st.lists(st.sampled_from([0.9, 1.0, 1.1, 1.3, 2.0]), min_size=7, max_size=7)


@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    slow=st.lists(SLOW, min_size=3, max_size=3),
    weights_s=st.lists(st.sampled_from([0.0, 10.0, 1000.0]), min_size=3, max_size=3),
    runs=st.lists(st.booleans(), min_size=3, max_size=3),
    move_s=st.sampled_from([0.0, 1.0, 60.0]),
)
def test_exchanges_never_cost_more_than_they_gain(
    sizes: list[int], slow: list[list[float]], weights_s: list[float], runs: list[bool], move_s: float
) -> None:
    """Each lane has one job afterwards, each job keeps its number of lanes, and the remaining times become shorter."""
    jobs, first = [], 0
    for number, size in enumerate(sizes):
        if first + size > 7:
            break
        where = range(first, first + size)
        jobs.append(placed(where, weights_s[number], slow[number], runs[number]))
        first += size
    before = [set(each.lanes) for each in jobs]
    after = improved(jobs, "aaaabbb", move_s)
    assert [len(each) for each in after] == [len(each) for each in before]
    assert len(set().union(*after)) == sum(map(len, after))
    assert _cost_s(jobs, after, move_s) <= _cost_s(jobs, before, move_s) + 1e-6
    moved = [each for each in jobs if each.moves]
    assert not moved or _cost_s(jobs, after, move_s) < _cost_s(jobs, before, move_s)


@example(slow=[[1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.9], [1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 1.0]], weights_s=(1.0, 1.0))
@given(slow=st.lists(SLOW, min_size=2, max_size=2), weights_s=st.tuples(*[st.sampled_from([1.0, 5.0, 20.0])] * 2))
def test_two_jobs_of_one_device_share_the_lanes_in_the_best_way(
    slow: list[list[float]], weights_s: tuple[float, float]
) -> None:
    jobs = [placed([number], weights_s[number], slow[number], runs=False) for number in range(2)]
    best = min(_cost_s(jobs, [{one}, {other}], 0.0) for one, other in permutations(range(7), 2))
    assert _cost_s(jobs, improved(jobs, "aaaabbb", 0.0), 0.0) == pytest.approx(best)


UNEVEN = {"a0": {"any": 0.5}, "a1": {"any": 1.0}}


def known(name: str, service_s: float | None = 10_000.0, job_class: str = "any") -> JobSpec:
    return JobSpec(name, job_class, service_s=service_s, movable=True)


@pytest.mark.parametrize(
    ("service_s", "options", "place"),
    [
        (10_000.0, {}, "a1"),
        (500.0, {}, "a0"),  # 200 s are left of it, of which a move would save 100 s
        (500.0, {"move": 90.0}, "a1"),
        (10_000.0, {"move": math.inf}, "a0"),
        (None, {}, "a0"),
    ],
)
def test_a_running_job_moves_where_that_pays(service_s: float | None, options: dict[str, float], place: str) -> None:
    options = {"move": 110.0, **options} if service_s == 500.0 else options
    run = Run(UNEVEN, known("early"), known("late", service_s), policy="pal", preempt=True, **options)
    assert run.places == {"early": ("a1",), "late": ("a0",)}
    run.end("early", 299.0)
    run.wait_until(300.0)
    (left,) = run.places.values()
    assert left == (place,)
    assert len(run.stopped) == (place == "a1")


def test_no_job_moves_if_all_devices_count_as_alike() -> None:
    run = Run(UNEVEN, known("early"), known("late"), blind=1.0)
    run.end("late", 299.0)
    run.wait_until(300.0)
    assert run.places == {"early": ("a0",)} and not run.stopped


def test_jobs_that_exchange_their_lanes_start_where_they_were_planned() -> None:
    """The waiting job of the sensitive class takes the fast lane, and the other one goes to the slow lane."""
    speeds = {"a0": {"picky": 0.5, "calm": 0.99}, "a1": {"picky": 1.0, "calm": 1.0}}
    run = Run(speeds, known("calm", job_class="calm"))
    assert run.places == {"calm": ("a1",)}
    run.come(known("picky", job_class="picky"), at_s=1.0)
    run.wait_until(300.0)
    assert run.places == {"calm": ("a0",), "picky": ("a1",)}
    assert run.stopped == ["calm"]
    kills = [job.history for job in run.core.jobs.values() if job.spec.name == "calm"]
    assert any("faster" in step.cause for step in kills[0])


def test_a_held_lane_that_closes_gives_its_job_up() -> None:
    here, job = lane(0), Job(known("job"), 0.0)
    held = HeldLanes({job: (here,)})
    assert held.kept() == {0} and not held.waits(job, lambda _: True)
    here.state = LaneState.CLOSED
    assert not held.waits(job, lambda _: True)
    assert held.take(job) == () and held.kept() == set()


LENGTHS_S = st.sampled_from([0.5, 3.0, 20.0, 60.0])


@pytest.mark.slow
@given(
    data=st.data(),
    jobs=st.lists(st.tuples(st.integers(1, 2), LENGTHS_S, st.floats(0.0, 30.0), st.sampled_from("xy")), max_size=12),
    failures=st.lists(st.tuples(st.floats(0.0, 40.0), st.sampled_from(["d0", "d1", "d3"])), max_size=2),
    refused=st.integers(0, 1),
)
def test_no_job_is_lost_and_none_waits_for_ever(
    data: st.DataObject,
    jobs: list[tuple[int, float, float, str]],
    failures: list[tuple[float, str]],
    refused: int,
) -> None:
    """The driver checks places after each event, and that the log replays."""
    random = Random(data.draw(st.integers(0, 99)))
    devices = tuple(
        Device(f"d{number}", "ab"[number // 3], 8 * GIB, tuple((name, random.choice([0.4, 1.0, 1.5])) for name in "xy"))
        for number in range(6)
    )
    scripts = {
        f"j{number}": (
            JobSpec(f"j{number}", job_class, gpus, 1, service_s=length_s, movable=True, retries=2),
            ScriptedJob(arrival_s, ((length_s, Outcome.COMPLETED),), refused),
        )
        for number, (gpus, length_s, arrival_s, job_class) in enumerate(jobs)
    }
    config = Config("pal", 1, 1, preempt=True, options=(("move", 0.1), ("round", 2.0)))
    driver = VirtualDriver(config, devices, scripts, failures=tuple(failures)).run()
    assert set(driver.states().values()) <= {JobState.COMPLETED}


def test_moves_happen_with_the_virtual_driver() -> None:
    """Without it, the property above could hold because nothing ever moves."""
    devices = (Device("d0", "a", 8 * GIB, (("x", 0.4),)), Device("d1", "a", 8 * GIB, (("x", 1.5),)))
    jobs = {
        name: (known(name, length_s, job_class="x"), ScriptedJob(at_s, ((length_s, Outcome.COMPLETED),)))
        for name, length_s, at_s in (("short", 20.0, 0.0), ("long", 60.0, 1.0))
    }
    config = Config("pal", 1, 1, preempt=True, options=(("move", 0.1), ("round", 2.0)))
    driver = VirtualDriver(config, devices, jobs).run()
    commands = [each for _, commands in driver.log for each in commands]
    assert [each.job for each in commands if isinstance(each, KillJob)] == ["short"]
    starts = [(each.job, each.lanes) for each in commands if isinstance(each, StartJob)]
    assert starts[0] == ("short", (1,)) and sorted(starts[1:]) == [("long", (1,)), ("short", (0,))]


@pytest.mark.nightly
class TestPalOnDevicesThatDiffer(PolicyContract):
    """PAL with rounds and moves that take effect within the minute of arrivals."""

    policy = "pal"
    options = (("across", 1.1), ("move", 0.5), ("round", 3.0))

    @pytest.fixture(autouse=True)
    def uneven(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """GPUs of unequal speed, none of them faster than the trace's."""
        speeds = {name: {"": speed} for name, speed in (("n0g0", 0.5), ("n0g1", 1.0), ("n1g0", 0.7), ("n1g1", 0.9))}
        gpu = GPUS["v100"]
        monkeypatch.setattr(policy_contract, "_CLUSTER", Cluster(2, 2, gpu, speeds=speeds))
        monkeypatch.setattr(policy_contract, "_WORLD", World(gpu, speeds=speeds))

    def test_work_done_is_work_asked(self) -> None:
        """A job works longer where its GPU is slower, but does no more iterations."""
        for run, result, ledger in self._finished():
            jobs = {job.name: job for job in run.trace.jobs}
            for each in result.finished:
                assert each.jct_s >= jobs[each.name].service_s - 1e-6
                assert ledger.iterations[each.name] == jobs[each.name].iterations
                assert jobs[each.name].service_s - 1e-6 <= ledger.worked_s[each.name]

    test_a_fresh_process_decides_alike = None  # type: ignore[assignment]  # it would have equal GPUs
