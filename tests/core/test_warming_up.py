"""Jobs of unknown classes on processors: they get warm and are measured one after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ecoshare.base.attempt import Usage
from ecoshare.base.class_profile import MemoryDemand, Solo
from ecoshare.core.commands import ProfileJob
from ecoshare.core.events import IterationsDone, Profiled
from ecoshare.core.reasons import Doing, Explanation, ReasonKind, Reasons
from tests.core.stepping import GIB, Core


def started(threads: int, *names: str, iterations: int | None = None) -> Core:
    """Core of one device with jobs of unknown classes, which are started and have no iteration so far."""
    core = Core(lanes=3, profile=True, threads=threads)
    for name in names:
        core.arrive(name, profiled=False, solo=None, iterations=iterations)
        core.foresee(aa=0.6, ab=0.6, bb=0.6)
        core.foresee(aa=0.6, ab=0.6, bb=0.6)  # a start has told how long it took
    return core


def progress(core: Core, name: str, held_s: float) -> None:
    core.now_s += 0.1
    core.tell(IterationsDone(core.now_s, name, Usage(iterations=20, held_s=held_s, span_s=held_s, peak_bytes=GIB)))


def measured(core: Core, busy: float) -> None:
    """The open window closes, and shows how busy its job keeps the processors."""
    window = core.last(ProfileJob)
    assert window is not None
    core.now_s += 1.0
    solo = Solo(window.job[0], 0.1, 100.0, 10.0, busy=busy)
    core.tell(Profiled(core.now_s, window.id, MemoryDemand(GIB), solo=solo))


def group(core: Core) -> set[str]:
    packer = core.scheduler.view.placement.groups
    assert packer is not None
    return {job.spec.name for job in packer.present(core.scheduler.lanes.values())}


def test_two_that_have_begun_on_processors_do_not_get_warm_beside_each_other() -> None:
    """If it failed, two busy jobs would be slow for seconds before either of them is measured."""
    core = started(4, "a0", "b0")
    assert group(core) == {"a0", "b0"}, "while they load their data"
    progress(core, "a0", 0.3)
    progress(core, "b0", 0.3)
    assert group(core) == {"a0"}
    reasons, jobs = Reasons(core.scheduler.view, core.now_s), core.scheduler.jobs
    for one, other, doing in (("a0", "b0", Doing.ALONE), ("b0", "a0", Doing.BEHIND)):
        reason = reasons.of(jobs[one])
        assert reason is not None and reason.doing is doing and reason.because == Explanation(ReasonKind.BUSY, (other,))
    progress(core, "a0", 1.2)
    window = core.last(ProfileJob)
    assert window is not None and window.job == "a0"


def test_the_next_one_gets_warm_beside_those_that_leave_the_processors_idle() -> None:
    for busy, beside in ((0.02, {"a0", "b0"}), (0.95, {"b0"})):
        core = started(4, "a0", "b0")
        progress(core, "a0", 0.3)
        progress(core, "b0", 0.3)
        progress(core, "a0", 1.2)
        measured(core, busy)
        core.foresee(ab=1.0 - 0.4 * busy, aa=0.9, bb=0.6)
        assert group(core) == beside, f"a0 keeps {busy} of the processors busy"
        progress(core, "b0", 1.2)
        window = core.last(ProfileJob)
        assert window is not None and window.job == "b0"


def test_those_that_end_before_a_window_stay_beside_each_other() -> None:
    """If it failed, short jobs would wait for a second for nothing."""
    core = started(4, "a0", "b0", iterations=100)
    progress(core, "a0", 0.3)
    progress(core, "b0", 0.3)
    assert group(core) == {"a0", "b0"}, "each has 1.2 s to go"


STALE = Solo("a", 0.1, 100.0, 10.0, busy=0.9)
"""A class that was measured on a busy machine, so that its profile is in doubt."""


def doubted(iterations: int, iteration_s: float) -> Core:
    """Core with a job of a doubted class that wants few processors, and a job of a known one that wants them all."""
    core = Core(lanes=3, profile=True, threads=4)
    core.arrive("b0", solo=replace(STALE, family="b", busy=1.0))
    known_s = iterations * iteration_s
    core.arrive(
        "a0", profiled=False, solo=replace(STALE, iteration_s=iteration_s), iterations=iterations, service_s=known_s
    )
    core.foresee(ab=0.95, aa=0.95, bb=0.5)
    core.foresee(ab=0.95, aa=0.95, bb=0.5)
    return core


@pytest.mark.parametrize(("iterations", "iteration_s"), [(100, 0.015), (20, 0.5)], ids=["too short", "too few"])
def test_a_doubted_class_that_cannot_be_measured_is_beside_others_all_the_same(
    iterations: int, iteration_s: float
) -> None:
    """It was kept apart in each run, "measured first", and never measured: it ended before its window."""
    core = doubted(iterations, iteration_s)
    assert group(core) == {"a0", "b0"}, "before it has begun"
    core.now_s += 0.1
    spent_s = 10 * iteration_s
    core.tell(IterationsDone(core.now_s, "a0", Usage(iterations=10, held_s=spent_s, span_s=spent_s, peak_bytes=GIB)))
    assert group(core) == {"a0", "b0"}
    assert core.last(ProfileJob) is None


def test_a_doubted_class_that_can_be_measured_is() -> None:
    """With 2.4 s of work it got no window in any later run, since five seconds had to be left."""
    core = doubted(160, 0.015)
    progress(core, "b0", 1.0)
    core.now_s += 1.0
    core.tell(IterationsDone(core.now_s, "a0", Usage(iterations=80, held_s=1.2, span_s=1.2, peak_bytes=GIB)))
    window = core.last(ProfileJob)
    assert window is not None and window.job == "a0"


def test_on_a_gpu_both_stay_beside_each_other() -> None:
    core = started(0, "a0", "b0")
    progress(core, "a0", 0.3)
    progress(core, "b0", 0.3)
    assert group(core) == {"a0", "b0"}
