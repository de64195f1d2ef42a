"""Places for jobs that cannot be resized, such as all live jobs: none is moved, and the longest start first."""

from __future__ import annotations

import pytest

from ecoshare.core.commands import Command, KillJob
from ecoshare.core.events import Event, JobExited
from ecoshare.core.states import JobState
from ecoshare.values.attempt import Outcome, Usage
from ecoshare.values.class_profile import Solo
from tests.core.stepping import Core


class Fluid(Core):
    """One device of four places."""

    def __init__(self, policy: str) -> None:
        self.commands: list[Command] = []
        super().__init__(policy, lanes=2, places=2)
        handle = self.scheduler.handle

        def remember(event: Event) -> list[Command]:
            commands = handle(event)
            self.commands += commands
            return commands

        self.scheduler.handle = remember  # type: ignore[method-assign]

    def come(self, name: str, hours: int) -> None:
        self.arrive(name, gib=0.1, iterations=hours, solo=Solo(iteration_s=1.0))

    def end(self, name: str) -> None:
        self.tell(JobExited(self.now_s, name, 1, Outcome.COMPLETED, 0, "", Usage()))

    def running(self) -> set[str]:
        return {name for name, job in self.scheduler.jobs.items() if job.state is JobState.RUNNING}


@pytest.mark.parametrize("policy", ["fluid", "equal"])
def test_live_jobs_fill_all_places_and_are_never_stopped(policy: str) -> None:
    core = Fluid(policy)
    for name, hours in (("a", 5), ("b", 100), ("c", 1), ("d", 50), ("e", 20), ("f", 70)):
        core.come(name, hours)
    assert core.running() == set("abcd")
    assert sorted(len(lane.jobs) for lane in core.scheduler.lanes.values()) == [2, 2]
    core.end("c")
    assert core.running() == set("abdf"), "the longest of those that wait"
    core.end("b")
    assert core.running() == set("adef")
    assert not any(isinstance(command, KillJob) for command in core.commands)


@pytest.mark.parametrize(("hours", "first"), [(1, "f"), (1000, "e")])
def test_a_job_of_unknown_length_counts_as_the_mean(hours: int, first: str) -> None:
    core = Fluid("fluid")
    for name in "abcd":
        core.come(name, 10)
    core.come("e", hours)
    core.arrive("f", gib=0.1)
    core.end("a")
    assert core.running() == {*"bcd", first}
