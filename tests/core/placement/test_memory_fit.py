"""Memory grants of jobs of unknown classes: on processors, where memory is watched, and on GPUs."""

from __future__ import annotations

import pytest

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.class_profile import Solo
from ecoshare.core.events import IterationsDone, JobExited
from ecoshare.core.placement.memory_fit import SPARE, UNSEEN_BYTES
from ecoshare.core.reasons import Explanation, ReasonKind, Reasons
from ecoshare.core.records import JobState
from tests.core.stepping import GIB, Core


def unknown(core: Core, *names: str, script: str = "") -> None:
    """Let jobs of classes without a profile arrive; the first letter of a name is the class."""
    for name in names:
        core.arrive(name, memory=None, profiled=False, solo=Solo(script or name))


def grow(core: Core, name: str, gib: float, held_s: float = 1.0) -> None:
    """Report this much memory of a job, and no work that could be measured."""
    core.tell(IterationsDone(core.now_s, name, Usage(held_s=held_s, peak_bytes=int(gib * GIB))))


def end(core: Core, name: str, gib: float, outcome: Outcome = Outcome.COMPLETED) -> None:
    core.tell(
        JobExited(core.now_s, name, core.scheduler.jobs[name].attempt, outcome, 0, "", Usage(peak_bytes=int(gib * GIB)))
    )


def state(core: Core, name: str) -> JobState:
    return core.scheduler.jobs[name].state


def granted_gib(core: Core, name: str) -> float:
    return core.scheduler.jobs[name].demand.peak_bytes / GIB


@pytest.mark.parametrize("policy", ["energy", "fair"])
def test_on_processors_new_jobs_share_from_the_first_second(policy: str) -> None:
    """If it failed, scripts that are new to ecoshare would run one after the other, each with all of the memory."""
    core = Core(policy, lanes=1 if policy == "fair" else 4, profile=True, threads=4)
    unknown(core, "a", "b", "c")
    if policy == "energy":
        core.foresee(**{one + other: 0.97 for one in "abc" for other in "abc"})
    beside = "ab" if policy == "energy" else "abc"  # a policy that packs tries two unknown classes at a time
    assert [name for name in "abc" if state(core, name) is JobState.RUNNING] == list(beside)
    assert all(granted_gib(core, name) == UNSEEN_BYTES / GIB for name in beside)
    if policy == "energy":
        reason = Reasons(core.scheduler.view, 0.0).of(core.scheduler.jobs["c"])
        assert reason is not None and reason.because == Explanation(ReasonKind.NEW, ("a", "b"))


def test_on_a_gpu_a_new_job_has_all_that_is_free() -> None:
    """The grant bounds the allocator of the job, and too small a grant would end it."""
    core = Core(profile=True)
    unknown(core, "a", "b")
    assert granted_gib(core, "a") == 8.0
    assert (state(core, "a"), state(core, "b")) == (JobState.RUNNING, JobState.QUEUED)


def test_what_a_job_is_granted_grows_with_it() -> None:
    core = Core("fair", lanes=1, threads=4)
    unknown(core, "a")
    grow(core, "a", 2.0)
    assert granted_gib(core, "a") == SPARE * 2.0
    unknown(core, "b")
    grow(core, "b", 1.0)
    core.arrive("known", gib=4.0)
    assert state(core, "known") is JobState.QUEUED, "3 + 1.5 + 4 GiB are more than there are"
    end(core, "b", 1.0)
    assert state(core, "known") is JobState.RUNNING


@pytest.mark.parametrize("policy", ["energy", "fair"])
def test_memory_that_a_new_job_does_not_need_is_free_at_once(policy: str) -> None:
    """If it failed, services that never end would keep a job waiting for memory that none of them takes."""
    core = Core(policy, lanes=1 if policy == "fair" else 3, threads=4)
    core.arrive("known", gib=7.25)
    unknown(core, "a")
    core.arrive("waits", gib=0.5)
    if policy == "energy":
        core.foresee(**{one + other: 0.97 for one in "kaw" for other in "kaw"})
    assert [state(core, name) for name in ("known", "a", "waits")] == [*[JobState.RUNNING] * 2, JobState.QUEUED]
    grow(core, "a", 0.1)
    assert granted_gib(core, "a") == pytest.approx(SPARE * 0.1)
    assert state(core, "waits") is JobState.RUNNING


@pytest.mark.parametrize("policy", ["energy", "fair"])
def test_of_jobs_that_outgrow_the_memory_one_begins_again(policy: str) -> None:
    """The warm server ends it where their memory ends. Before, the core ended another one at the same moment."""
    core = Core(policy, lanes=1 if policy == "fair" else 3, threads=4)
    unknown(core, "a", "b")
    if policy == "energy":
        core.foresee(ab=0.9)
    grow(core, "a", 4.0, held_s=10.0)
    grow(core, "b", 4.0, held_s=1.0)
    grow(core, "b", 4.5, held_s=1.5)
    assert not core.stopped, "they may not have used so much at once"
    end(core, "b", 4.5, Outcome.OUTGREW)
    assert (state(core, "a"), state(core, "b")) == (JobState.RUNNING, JobState.QUEUED)
    end(core, "a", 4.5)
    assert state(core, "b") is JobState.RUNNING and granted_gib(core, "b") == 8.0, "it begins again once"


@pytest.mark.parametrize("grower", ["known", "other"])
def test_on_a_gpu_the_job_that_has_outgrown_its_promise_gives_way(grower: str) -> None:
    """Fails if its neighbour, which takes what it was promised, begins again."""
    core = Core("fair", lanes=1, enforces=True)
    core.arrive("known", gib=3.0)
    core.arrive("other", gib=2.0)
    assert [state(core, name) for name in ("known", "other")] == [JobState.RUNNING] * 2
    grow(core, "known", 3.0, held_s=1.0)
    grow(core, "other", 2.0, held_s=100.0)
    most = 5.0 if grower == "known" else 4.0
    grow(core, grower, most, held_s=101.0)
    assert not core.stopped, "there is memory for both"
    grow(core, grower, most + 0.8, held_s=102.0)
    assert core.stopped == [grower]


def test_a_job_alone_may_have_all_memory() -> None:
    core = Core("fair", lanes=1, threads=4)
    core.arrive("known", gib=1.0)
    grow(core, "known", 7.9)
    assert not core.stopped and granted_gib(core, "known") == pytest.approx(7.9, abs=0.2)
    unknown(core, "b")
    assert state(core, "b") is JobState.QUEUED, "newcomers wait"


def test_what_a_measured_class_was_seen_to_take_is_granted_to_the_next() -> None:
    core = Core("fair", lanes=1, threads=4, enforces=True)
    core.arrive("known", gib=1.0)
    grow(core, "known", 1.1)
    assert granted_gib(core, "known") == 1.25, "half of the allowance is left"
    grow(core, "known", 2.0)
    core.arrive("known2", gib=1.0)
    assert granted_gib(core, "known2") == granted_gib(core, "known") == 2.5


def test_one_that_outgrew_its_memory_beside_others_begins_again_once_alone() -> None:
    core = Core("energy", lanes=3, threads=4)
    core.arrive("known", gib=5.0)
    unknown(core, "a")
    core.foresee(ka=0.9)
    end(core, "a", 3.0, Outcome.OUTGREW)
    assert state(core, "a") is JobState.QUEUED, "all of the memory is not to be had beside the other one"
    end(core, "known", 5.0)
    assert state(core, "a") is JobState.RUNNING and granted_gib(core, "a") == 8.0
    end(core, "a", 8.0, Outcome.OUTGREW)
    assert state(core, "a") is JobState.FAILED


@pytest.mark.parametrize("outcome", [Outcome.OUT_OF_MEMORY, Outcome.OUTGREW])
def test_no_job_begins_again_that_could_not_have_had_more(outcome: Outcome) -> None:
    """A script without retries that fails by itself would repeat its side effects for nothing."""
    core = Core("energy", lanes=3, threads=4)
    unknown(core, "a")
    end(core, "a", 8.0, outcome)
    assert state(core, "a") is JobState.FAILED


@pytest.mark.parametrize("threads", [0, 4])
def test_a_class_of_the_same_script_is_granted_what_that_took(threads: int) -> None:
    """Forty jobs of one script with different arguments need about the same memory."""
    core = Core("energy", profile=True, threads=threads)
    unknown(core, "a", script="train.py")
    end(core, "a", 2.0)
    unknown(core, "b", "c", script="train.py")
    core.foresee(bc=0.9, bb=0.9, cc=0.9)
    assert granted_gib(core, "b") == granted_gib(core, "c") == SPARE * 2.0
    assert (state(core, "b"), state(core, "c")) == (JobState.RUNNING, JobState.RUNNING)
