"""Jobs of unknown classes on processors: they get warm and are measured one after the other."""

from __future__ import annotations

from ecoshare.core.commands import ProfileJob
from ecoshare.core.events import IterationsDone, Profiled
from ecoshare.core.placement.group_choice import Explanation, ReasonKind
from ecoshare.core.reasons import Doing, Reasons
from ecoshare.values.attempt import Usage
from ecoshare.values.class_profile import MemoryDemand, Solo
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


def test_on_a_gpu_both_stay_beside_each_other() -> None:
    core = started(0, "a0", "b0")
    progress(core, "a0", 0.3)
    progress(core, "b0", 0.3)
    assert group(core) == {"a0", "b0"}
