"""Times at which a profiling window may begin."""

from __future__ import annotations

from ecoshare.base.attempt import Usage
from ecoshare.base.class_profile import MemoryDemand
from ecoshare.core.events import IterationsDone, Profiled
from ecoshare.core.settings.profiling_windows import PAUSE_S
from tests.core.stepping import Core, solo

WARM = Usage(iterations=50, held_s=2.0, span_s=2.0)


def beside() -> Core:
    """A job of an unseen class, and one of a known class in another lane."""
    core = Core("fair", lanes=2, profile=True)
    core.arrive("a", profiled=False, memory=None)
    core.arrive("b")
    return core


def test_a_window_waits_for_neighbours_that_have_just_started_and_for_no_other() -> None:
    """Fails if a window begins beside a job without iterations: it could not be made to wait, and the window fails."""
    core = beside()
    core.tell(IterationsDone(3.0, "a", WARM))
    assert not core.scheduler.view.profiling.windows, "b loads its data"
    core.tell(IterationsDone(4.0, "b", Usage(iterations=1)))
    core.tell(IterationsDone(5.0, "a", WARM))
    assert len(core.scheduler.view.profiling.windows) == 1


def test_a_neighbour_that_never_iterates_puts_no_window_off() -> None:
    core = beside()
    core.tell(IterationsDone(PAUSE_S + 1.0, "a", WARM))
    assert len(core.scheduler.view.profiling.windows) == 1


def test_the_next_window_follows_at_once() -> None:
    """It waited for the next report of its job, up to a second, in which the group was not the best yet."""
    core = Core("fair", lanes=3, profile=True)
    for name in "abc":
        core.arrive(name, profiled=False, memory=None, job_class=name)
    for name in "abc":
        core.tell(IterationsDone(3.0, name, Usage(iterations=5, held_s=0.5, span_s=0.5)))
    for name in "ab":
        core.tell(IterationsDone(4.0, name, WARM))
    windows = core.scheduler.view.profiling.windows
    (first,) = windows
    assert windows[first].spec.name == "a"
    core.tell(Profiled(5.0, first, MemoryDemand(1 << 30), solo=solo("a")))
    (second,) = windows
    assert windows[second].spec.name == "b"
    core.tell(Profiled(6.0, second, None, error="no iteration of the job was seen"))
    assert not windows, "c is not warm, and b gets another window after a pause"
