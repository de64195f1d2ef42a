"""Jobs that died twice with a process that others depend on run alone, so that the cause shows."""

from __future__ import annotations

import pytest

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.core.events import JobExited
from ecoshare.core.job_ends import MOST_LOSSES
from ecoshare.core.reasons import Explanation, ReasonKind, Reasons
from ecoshare.core.records import JobState
from tests.core.stepping import Core


def running(core: Core) -> list[str]:
    return [name for name, job in core.scheduler.jobs.items() if job.state is JobState.RUNNING]


def end(core: Core, name: str, outcome: Outcome) -> None:
    attempt = core.scheduler.jobs[name].attempt
    core.tell(JobExited(core.now_s, name, attempt, outcome, None, "", Usage()))


def server_dies(core: Core) -> None:
    """End the shared process: all running jobs are lost."""
    for name in running(core):
        end(core, name, Outcome.LOST)


@pytest.mark.parametrize("policy", ["energy", "fair", "fifo", "srtf", "priority", "tiresias", "pack"])
def test_after_two_deaths_each_runs_alone_and_only_the_one_fails(policy: str) -> None:
    core = Core(policy, lanes=2, places=2)
    for name in ("a", "bad", "c"):
        core.arrive(name)
    core.foresee(**{one + other: 0.97 for one in "abc" for other in "abc"}) if policy in ("energy",) else None
    deaths = 0
    while live := [name for name, job in core.scheduler.jobs.items() if not job.state.ended]:
        now = running(core)
        assert now, f"no job of {live} runs"
        if "bad" in now:
            deaths += 1
            server_dies(core)
        else:
            end(core, now[0], Outcome.COMPLETED)
        suspects = [name for name in running(core) if core.scheduler.jobs[name].is_suspect]
        assert not suspects or len(running(core)) == 1
    states = {name: job.state for name, job in core.scheduler.jobs.items()}
    assert states == {"a": JobState.COMPLETED, "bad": JobState.FAILED, "c": JobState.COMPLETED}
    assert deaths == MOST_LOSSES + 1


def test_the_reason_is_told_for_both_sides() -> None:
    core = Core("fair", lanes=2, places=2)
    for name in ("a", "b"):
        core.arrive(name)
    for _ in range(2):
        server_dies(core)
    (alone,) = running(core)
    (waits,) = {"a", "b"} - {alone}
    core.arrive("fresh")
    for name in (waits, "fresh"):
        reason = Reasons(core.scheduler.view, 0.0).of(core.scheduler.jobs[name])
        assert reason is not None and reason.because == Explanation(ReasonKind.SUSPECT, (alone,))
