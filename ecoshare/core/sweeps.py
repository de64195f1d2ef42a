"""The sweeps of a run: how many of their trials are there, when another is drawn, and who ends early.

A sweep is a source of jobs of one script that differ in some values: its *trials*. What these are is the sampler's
affair, which is asked for one at a time, so that a sweep of ten thousand trials has a few of them in the core's hands
at once, and a sampler that learns knows as much as can be known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ecoshare.core.commands import AskSampler
from ecoshare.core.early_stopping import Halving, StoppingRule, rule
from ecoshare.core.events import Exhausted, JobArrived, Reported, SweepOpened, SweepSpec
from ecoshare.core.records import Job
from ecoshare.core.states import JobState

_AT_WORK = (JobState.RUNNING, JobState.STOPPING)


@dataclass(slots=True)
class _Sweep:
    """One sweep.

    Attributes:
        live: Its trials that have arrived and not ended, but for those that pause.
        drawn: That its sampler was asked for; the number of the next.
        asked: Questions to its sampler that are not answered.
        over: Its sampler has no more.
        paused: Trials that pause and have left their places.
    """

    spec: SweepSpec
    rule: StoppingRule | None
    drawn: int
    live: int = 0
    asked: set[int] = field(default_factory=set)
    over: bool = False
    paused: dict[str, None] = field(default_factory=dict)

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
        self._decided: dict[str, str] = {}

    @property
    def open(self) -> int:
        """Sweeps of which more trials are to come."""
        return sum(sweep.is_open for sweep in self._sweeps.values())

    @property
    def coming(self) -> bool:
        """Whether a sampler is asked for a trial, or is about to be."""
        return any(
            sweep.asked or (not sweep.over and sweep.live < sweep.spec.parallel) for sweep in self._sweeps.values()
        )

    def opened(self, event: SweepOpened) -> None:
        """A sweep begins, or goes on in another session."""
        spec = event.sweep
        halting = rule(spec.early_stopping, spec.earlier_trials) if spec.early_stopping is not None else None
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
                self._look(sweep)

    def reported(self, job: Job, event: Reported) -> str:
        """Why a trial is to end early or to pause (`pauses`), by what it reports; nothing where it goes on."""
        sweep = self._sweeps[job.spec.sweep]
        if event.halt:
            return event.halt
        if sweep.rule is None or (isinstance(sweep.rule, Halving) and job.state not in _AT_WORK):
            return ""  # who waits for a place has left the rung behind, if not the next one
        value = -event.value if sweep.spec.maximise else event.value
        reason = sweep.rule.told(job.spec.name, event.step, value)
        if not reason or not isinstance(sweep.rule, Halving) or job.state is not JobState.RUNNING:
            return reason
        if sweep.live == 1 and not sweep.is_open:  # all others are there, so that it need not pause
            self._decide(sweep, sweep.rule)
            return self._decided.pop(job.spec.name)
        return reason

    def iterations_until_rung(self, job: Job) -> int | None:
        """Iterations after which a job pauses; None where it never does, or nobody knows."""
        sweep = self._sweeps.get(job.spec.sweep)
        if sweep is None or not isinstance(sweep.rule, Halving) or job.spec.iterations is None:
            return None
        step, steps = sweep.rule.next_step(job.spec.name), sweep.rule.halting.steps
        return -(-job.spec.iterations * step // steps) if step is not None and steps else None

    def pauses(self, job: Job) -> bool:
        """Whether a trial is at a rung, and waits for the others of its sweep."""
        sweep = self._sweeps.get(job.spec.sweep)
        return sweep is not None and isinstance(sweep.rule, Halving) and job.spec.name in sweep.rule.waiting

    @property
    def paused(self) -> list[str]:
        """Trials that pause and have left their places."""
        return [name for sweep in self._sweeps.values() for name in sweep.paused]

    def left(self, job: Job) -> None:
        """A trial that pauses has left its place, for another one."""
        sweep = self._sweeps[job.spec.sweep]
        sweep.live -= 1
        sweep.paused[job.spec.name] = None
        self._short[job.spec.sweep] = None
        self._look(sweep)

    def ended(self, job: Job) -> None:
        """A job has ended: where it is a trial, there is room for another."""
        if (sweep := self._sweeps.get(job.spec.sweep)) is not None:
            if job.spec.name in sweep.paused:
                del sweep.paused[job.spec.name]
            else:
                sweep.live -= 1
            self._short[job.spec.sweep] = None
            if sweep.rule is not None:
                sweep.rule.ended(job.spec.name, job.state is JobState.COMPLETED)
            self._look(sweep)

    def decided(self) -> dict[str, str]:
        """Trials that pause no longer: why each ends, or nothing where it goes on."""
        decided, self._decided = self._decided, {}
        for name in decided:
            sweep = next(sweep for sweep in self._sweeps.values() if name in sweep.paused)
            if not decided[name]:
                del sweep.paused[name]
                sweep.live += 1
        return decided

    def _look(self, sweep: _Sweep) -> None:
        """Something has changed: where nobody is on the way to a rung any more, it is said who goes on."""
        if isinstance(sweep.rule, Halving) and sweep.rule.waiting and not sweep.live and not sweep.is_open:
            self._decide(sweep, sweep.rule)

    def _decide(self, sweep: _Sweep, rule: Halving) -> None:
        self._decided.update(rule.decide())

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
