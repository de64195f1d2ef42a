"""Reasons why jobs wait, share or run alone: they are true of the moment, and a question for them changes nothing."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sortedcontainers import SortedList

from ecoshare.base.attempt import Usage
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.events import SCHEMA, Config, Done, IterationsDone, JobArrived, RunOpened
from ecoshare.core.placement.job_groups import HOPE
from ecoshare.core.reasons import Doing, Explanation, Reason, ReasonKind, Reasons
from ecoshare.core.records import JobState
from ecoshare.core.scheduler import Scheduler
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.traces.job_trace import TraceJob
from tests.core.stepping import ALONE_W, ERROR, GIB, IDLE_W, Core
from tests.rounds import rounds
from tests.simulation.test_packs import JOBS, PACKS, SIZES, SPEEDS, job, simulated, world


class Asked(Core):
    """Virtual driver that asks for the reasons after each event."""

    def why(self, name: str) -> Reason:
        found = Reasons(self.scheduler.view, self.now_s).of(self.scheduler.jobs[name])
        assert found is not None
        return found

    def because(self, name: str) -> Explanation:
        found = self.why(name).because
        assert found is not None
        return found


def test_a_costlier_job_waits_and_the_reason_has_the_excess() -> None:
    core = Asked()
    for name in "ab":
        core.arrive(name, iterations=1000)
    core.foresee(ab=0.4)
    # Alone 200 W for a second of work; beside each other 40 + 2 x 0.4 x 160 W for 0.8 seconds of it, or what is hoped.
    hoped = 2 * (0.4 + HOPE * ERROR)
    dearer = (IDLE_W + hoped * (ALONE_W - IDLE_W)) / hoped / ALONE_W - 1.0
    because = core.because("b")
    assert (because.why, because.jobs, because.instead) == (ReasonKind.WORSE, ("a",), ("a",))
    assert because.speeds == pytest.approx((0.4, 0.4)) and because.excess == pytest.approx(dearer)
    alone = core.why("a")
    assert (alone.doing, alone.because) == (Doing.ALONE, replace(because, jobs=("b",)))


def test_those_that_gain_share_and_are_told_how_fast_they_should_be() -> None:
    core = Asked()
    core.arrive("a")
    assert core.why("a") == Reason(Doing.ALONE, "cuda:0", because=Explanation(ReasonKind.NO_OTHER_JOB))
    core.arrive("b")
    core.foresee(ab=0.9)
    assert replace(core.why("a"), speeds=()) == Reason(Doing.SHARES, "cuda:0", ("b",))
    assert core.why("a").speeds == pytest.approx((0.9, 0.9))
    assert core.why("b").beside == ("a",)


def test_the_reason_names_the_job_with_the_broken_limit_and_its_least_speed() -> None:
    core = Asked()
    core.arrive("a", slowdown_limit=1.25)
    core.foresee()
    core.arrive("b")
    core.foresee(ab=0.7)
    because = core.because("b")
    assert (because.why, because.jobs) == (ReasonKind.LIMIT, ("a",))
    assert because.least == pytest.approx((0.0, 0.8)) and because.speeds[1] == pytest.approx(0.7)
    assert core.because("a").why is ReasonKind.LIMIT


def test_memory_is_told_as_what_is_needed_and_what_is_free() -> None:
    core = Asked()
    core.arrive("a", gib=6.0)
    core.foresee()
    core.arrive("b", gib=3.0)
    expected = Explanation(ReasonKind.MEMORY, needs_bytes=3 * GIB, free_bytes=2 * GIB)
    assert core.because("b") == expected
    assert core.because("a") == replace(expected, jobs=("b",)), "why a is alone"


def test_places_and_memory_are_the_reasons_of_a_policy_without_groups() -> None:
    core = Asked("fifo", lanes=1, places=1)
    for name in ("a", "b", "c"):
        core.arrive(name)
    assert core.because("b") == Explanation(ReasonKind.PLACES, ("a",))
    core = Asked("fair", lanes=1, places=3)
    for name, gib in (("a", 5.0), ("b", 4.0), ("c", 2.0)):
        core.arrive(name, gib=gib)
    assert core.because("b") == Explanation(ReasonKind.MEMORY, needs_bytes=4 * GIB, free_bytes=GIB)
    assert core.why("c") == Reason(Doing.SHARES, "cuda:0", mates=("a",))


def test_a_job_in_a_lane_that_another_job_keeps_has_no_turn() -> None:
    core = Asked("fair", lanes=1, places=3)
    for name in "ab":
        core.arrive(name)
    core.tell(IterationsDone(core.now_s, "a", Usage(keeps_lane="its ranks use the device")))
    assert core.why("b") == Reason(Doing.BLOCKED, "cuda:0", ("a",))
    assert core.why("a") == Reason(Doing.SHARES, "cuda:0", mates=("b",)), "no reason against itself"


def test_a_gang_waits_for_devices_and_without_backfill_others_for_the_gang() -> None:
    scheduler = Scheduler()
    devices = tuple(Device(f"cuda:{number}", "here", 8 * GIB) for number in range(2))
    for command in scheduler.handle(RunOpened(0.0, SCHEMA, Config("fifo"), devices)):
        scheduler.handle(Done(0.0, command.id))
    for name, gpus in (("a", 1), ("g", 2), ("c", 1)):
        scheduler.handle(JobArrived(0.0, JobSpec(name, name, gpus=gpus)))
    reasons = Reasons(scheduler.view, 0.0)
    gang, single = (reasons.of(scheduler.jobs[name]) for name in "gc")
    assert gang == Reason(Doing.WAITS, because=Explanation(ReasonKind.DEVICES, needs=2, free=1))
    assert single is not None and single.because == Explanation(ReasonKind.ORDER, ("g",), ahead=1)


def test_no_job_starts_in_a_window_and_the_reason_names_the_measured_job() -> None:
    core = Asked(profile=True)
    core.arrive("a", profiled=False, solo=None)
    core.arrive("b", profiled=False, solo=None)
    core.tell(IterationsDone(1.0, "b", Usage(iterations=1)))
    core.tell(IterationsDone(1.0, "a", Usage(iterations=50, held_s=2.0, span_s=2.0)))
    core.arrive("c")
    assert core.why("a").doing is Doing.MEASURED
    assert core.because("c") == Explanation(ReasonKind.WINDOW, ("a",))
    assert core.why("b") == Reason(Doing.PAUSED, "cuda:0", ("a",)), "it had started before"


def test_all_jobs_wait_for_lanes_to_open() -> None:
    scheduler = Scheduler()
    scheduler.handle(RunOpened(0.0, SCHEMA, Config("energy"), (Device("cuda:0", "here", GIB),)))
    scheduler.handle(JobArrived(0.0, JobSpec("a", "a")))
    found = Reasons(scheduler.view, 0.0).of(scheduler.jobs["a"])
    assert found == Reason(Doing.WAITS, because=Explanation(ReasonKind.OPENING))


def state(value: object, seen: dict[int, int]) -> object:
    """Content of an object of the core, for comparison; an object that was seen already is named by its place."""
    if id(value) in seen:
        return seen[id(value)]
    if isinstance(value, dict):
        return [(state(key, seen), state(each, seen)) for key, each in value.items()]
    if isinstance(value, list | tuple | set | frozenset | SortedList):
        return [state(each, seen) for each in value]
    if not type(value).__module__.startswith("ecoshare.core") or isinstance(value, Enum):
        return "" if callable(value) else repr(value)
    seen[id(value)] = len(seen)
    names = [*getattr(value, "__dict__", {}), *getattr(type(value), "__slots__", ())]
    return [type(value).__name__, *((name, state(getattr(value, name, None), seen)) for name in names)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", ["energy", *(pytest.param(each, marks=pytest.mark.slow) for each in ("jct", "fair"))]
)
def test_asking_leaves_everything_in_the_core_as_it_was(policy: str) -> None:
    jobs = [job(f"{name}{count}", name, 60.0 + 20.0 * count, 10.0 * count) for count in range(3) for name in "abc"]
    jobs[1] = replace(jobs[1], slowdown_limit=1.5)
    _, log = simulated(jobs, world(ab=0.3, ac=0.95, bc=0.6, aa=0.8), Config(policy, 2, 3, profile=True), 1, Costs())
    core = Scheduler()
    for place, (event, _) in enumerate(log):
        core.handle(event)
        if place % 9:
            continue
        before = state(core, {})
        reasons = Reasons(core.view, event.at_s)
        for each in core.jobs.values():
            reasons.of(each)
        assert state(core, {}) == before


POLICIES = (*PACKS, "fair", "fifo", "gandiva", "priority", "srtf")


@pytest.mark.nightly
@settings(max_examples=rounds(5, nightly=100))
@given(JOBS, SIZES, SPEEDS, st.sampled_from(POLICIES), st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_asking_at_every_moment_changes_no_decision_and_every_job_has_a_reason(
    jobs: list[TraceJob],
    sizes: dict[str, float],
    speeds: dict[str, float],
    policy: str,
    lanes: int,
    places: int,
    profile: bool,
) -> None:
    most_gib = 31.0 if policy in PACKS else 31.0 / lanes
    gib = {name: min(size, most_gib) for name, size in sizes.items()}
    jobs = [replace(each, memory=job("", "a", gib=gib[each.job_class]).memory) for each in jobs]
    _, log = simulated(jobs, world(**speeds), Config(policy, lanes, places, profile=profile), 2, Costs())
    core = Scheduler()
    for event, logged in log:
        assert core.handle(event) == logged
        reasons = Reasons(core.view, event.at_s)
        for each in core.jobs.values():
            found = reasons.of(each)
            assert (found is None) == each.state.ended
            if found is not None:
                check(found, each.state)
                assert Reasons(core.view, event.at_s).of(each) == found, "asked twice, the same answer"


def check(found: Reason, state: JobState) -> None:
    """Check the properties of every reason."""
    because = found.because
    if state is JobState.QUEUED:
        assert found.doing is Doing.WAITS and because is not None
    else:
        assert found.doing is not Doing.WAITS
        assert found.device
    if found.doing is Doing.SHARES:
        assert found.beside or found.mates
    if because is None:
        return
    if because.why is ReasonKind.MEMORY and because.needs_bytes is not None and because.free_bytes is not None:
        assert because.needs_bytes > because.free_bytes, "there would have been room"
    if because.why in (ReasonKind.WORSE, ReasonKind.LIMIT):
        assert len(because.speeds) == len(because.least) == 1 + len(because.jobs)
    if because.why is ReasonKind.LIMIT:
        assert any(because.least)
