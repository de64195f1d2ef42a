"""The sweeps of a run: how many of their trials are there, when another is drawn, and who ends early.

A sweep is a source of jobs of one script that differ in some values: its *trials*. What these are is the sampler's
affair, which is asked for one at a time, so that a sweep of ten thousand trials has a few of them in the core's hands
at once, and a sampler that learns knows as much as can be known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ecoshare.core.commands import AskSampler
from ecoshare.core.events import Exhausted, JobArrived, Reported, SweepOpened, SweepSpec
from ecoshare.core.halting import Rule, rule
from ecoshare.core.records import Job
from ecoshare.core.states import JobState


@dataclass(slots=True)
class _Sweep:
    """One sweep.

    Attributes:
        live: Its trials that have arrived and not ended.
        drawn: That its sampler was asked for; the number of the next.
        asked: Questions to its sampler that are not answered.
        over: Its sampler has no more.
    """

    spec: SweepSpec
    rule: Rule | None
    drawn: int
    live: int = 0
    asked: set[int] = field(default_factory=set)
    over: bool = False

    @property
    def is_open(self) -> bool:
        """Whether more is to come of it."""
        return not self.over or bool(self.asked)


class Sweeps:
    """All sweeps of a run."""

    def __init__(self, next_id: Callable[[], int]) -> None:
        """None yet; `next_id` gives ids of commands."""
        self._next_id = next_id
        self._sweeps: dict[str, _Sweep] = {}
        self._short: dict[str, None] = {}

    @property
    def open(self) -> int:
        """Sweeps of which more trials are to come."""
        return sum(sweep.is_open for sweep in self._sweeps.values())

    def opened(self, event: SweepOpened) -> None:
        """A sweep begins, or goes on in another session."""
        spec = event.sweep
        halting = rule(spec.halting, spec.past) if spec.halting is not None else None
        self._sweeps[spec.name] = _Sweep(spec, halting, spec.drawn)
        self._short[spec.name] = None

    def arrived(self, event: JobArrived) -> None:
        """A trial has arrived, because the sampler was asked for it or from an earlier session."""
        if (sweep := self._sweeps.get(event.job.sweep)) is not None:
            sweep.live += 1
            sweep.asked.discard(event.answers)

    def exhausted(self, event: Exhausted) -> None:
        """A sampler has no more."""
        for sweep in self._sweeps.values():
            if event.command in sweep.asked:
                sweep.asked.remove(event.command)
                sweep.over = True

    def reported(self, job: Job, event: Reported) -> str:
        """Why a trial is to end early, by what it reports; nothing where it goes on."""
        sweep = self._sweeps[job.spec.sweep]
        if event.halt:
            return event.halt
        if sweep.rule is None:
            return ""
        return sweep.rule.told(job.spec.name, event.step, -event.value if sweep.spec.maximise else event.value)

    def ended(self, job: Job) -> None:
        """A job has ended: where it is a trial, there is room for another."""
        if (sweep := self._sweeps.get(job.spec.sweep)) is not None:
            sweep.live -= 1
            self._short[job.spec.sweep] = None
            if sweep.rule is not None:
                sweep.rule.ended(job.spec.name, job.state is JobState.COMPLETED)

    def draw(self) -> list[AskSampler]:
        """Questions to the samplers of those sweeps that have room for more trials."""
        commands = []
        for name in self._short:
            sweep = self._sweeps[name]
            while not sweep.over and sweep.live + len(sweep.asked) < sweep.spec.parallel:
                command = AskSampler(self._next_id(), name, sweep.drawn)
                sweep.drawn += 1
                sweep.asked.add(command.id)
                commands.append(command)
        self._short.clear()
        return commands
