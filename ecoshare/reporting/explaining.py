"""Why a job waited, shared its device or ran alone: the decisions of a run, read again out of its log.

The log's events are fed to a fresh core. After each the core is asked for the reason of what every job does; equal
neighbours make an interval.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ecoshare.core.choice import Because, Why
from ecoshare.core.commands import Command, KillJob, ProfileJob
from ecoshare.core.events import Event, IterationsDone, JobArrived, JobExited, Outcome, Profiled, Refused, RunOpened
from ecoshare.core.reasons import Doing, Reason, Reasons
from ecoshare.core.states import JobState
from ecoshare.reporting.replaying import Moment, Replay
from ecoshare.reporting.stretches import Course, Watch

_NEAR = 0.05
"""Speeds and costs that differ by less are the same reason."""

_SHORTEST_S = 0.5
"""The scheduler decides step by step: what lasts for less than this is no reason, but on the way to one."""

_MOVING = frozenset({Why.ORDER, Why.MEMORY, Why.PLACES, Why.CHOSEN})
"""Reasons whose names and numbers change as others come and go, and that stay the same all the while."""


@dataclass(slots=True)
class Interval:
    """A time in which a job did the same for the same reason.

    Attributes:
        reason: As it was when it began.
        to_s: None while it goes on.
    """

    from_s: float
    reason: Reason
    to_s: float | None = None

    def length_s(self, end_s: float) -> float:
        """How long it lasted.

        Args:
            end_s: Of the run, where it has no end.
        """
        return (end_s if self.to_s is None else self.to_s) - self.from_s


@dataclass(slots=True)
class Story:
    """What happened to one job.

    Attributes:
        remarks: When, and what else there is to say, in words.
    """

    name: str
    job_class: str
    intervals: list[Interval] = field(default_factory=list)
    remarks: list[tuple[float, str]] = field(default_factory=list)

    def total_s(self, doing: Doing, end_s: float) -> float:
        """How long it did this."""
        return sum(each.length_s(end_s) for each in self.intervals if each.reason.doing is doing)

    def longest(self, doing: Doing, end_s: float) -> Interval | None:
        """The longest time that it did this for one reason; None where it never did."""
        own = [each for each in self.intervals if each.reason.doing is doing]
        return max(own, key=lambda each: each.length_s(end_s), default=None)

    def mates(self) -> list[str]:
        """With whom it has shared its device."""
        own = [each.reason for each in self.intervals if each.reason.doing is Doing.SHARES]
        return list(dict.fromkeys(name for reason in own for name in (*reason.beside, *reason.mates)))


@dataclass(frozen=True, slots=True)
class Window:
    """A time in which a job had a device to itself and was measured.

    Attributes:
        to_s: None where nobody told.
    """

    device: str
    job: str
    from_s: float
    to_s: float | None


@dataclass(slots=True)
class Explained:
    """All that is known of the decisions of a run.

    Attributes:
        policy: By which it was decided; empty where nothing was.
        stories: By job, in the order of arrival.
        end_s: The last moment that is known.
    """

    policy: str = ""
    stories: dict[str, Story] = field(default_factory=dict)
    course: Course = field(default_factory=Course)
    windows: list[Window] = field(default_factory=list)
    end_s: float = 0.0


def explain(entries: Iterable[Event | Command], only: str | None = None) -> Explained:
    """The decisions of a log, as far as it goes.

    Args:
        entries: Content of events.jsonl.
        only: A job; the reasons of others are left out, which is faster.
    """
    replay, listener = Replay(entries), _Listener(only)
    for moment in replay:
        listener.hear(moment)
    explained = listener.finished(replay)
    for story in explained.stories.values():
        story.intervals = _joined(story.intervals)
    return explained


class _Listener:
    """Goes through the moments of a run."""

    def __init__(self, only: str | None) -> None:
        self.explained, self.watch = Explained(), Watch()
        self._only = only
        self._live: dict[str, None] = {}  # in the order of arrival
        self._windows: dict[str, Window] = {}
        self._asked: dict[int, str] = {}

    def hear(self, moment: Moment) -> None:
        event, at_s = moment.event, moment.event.at_s
        if isinstance(event, RunOpened):
            self._open(event)
        self.explained.end_s = max(self.explained.end_s, at_s)
        self.watch.see(moment)
        if isinstance(event, JobArrived):
            self.explained.stories.setdefault(event.job.name, Story(event.job.name, event.job.job_class))
            self._live[event.job.name] = None
        self._remark(moment)
        if not isinstance(event, IterationsDone) or moment.commands:  # else nothing was decided
            self._note(moment)

    def finished(self, replay: Replay) -> Explained:
        """What was heard, with the windows that go on."""
        self.explained.course = self.watch.finished(replay)
        self.explained.windows += self._windows.values()
        if replay.is_lost:
            self._cut_off()
        return self.explained

    def _cut_off(self) -> list[Story]:
        """End what goes on where nobody told how it went on; whose it was."""
        going = [story for story in self.explained.stories.values() if story.intervals and not story.intervals[-1].to_s]
        for story in going:
            story.intervals[-1].to_s = self.explained.end_s
        return going

    def _open(self, event: RunOpened) -> None:
        """A session begins; of one that was cut off nobody told the end."""
        self.explained.policy = event.config.policy
        for story in self._cut_off():
            story.remarks.append((self.explained.end_s, "cut off with the run, which was resumed later"))
        self.explained.windows += self._windows.values()
        self._windows.clear()
        self._asked.clear()
        self._live.clear()

    def _note(self, moment: Moment) -> None:
        reasons = Reasons(moment.core.inside, moment.event.at_s)
        devices: dict[str, str] = {}
        for name in list(self._live):
            job = moment.core.jobs[name]
            if job.state.ended:
                del self._live[name]
            if name == self._only or self._only is None:
                self._add(self.explained.stories[name], moment.event.at_s, reasons.of(job))
        for device in moment.core.inside.room.devices:
            if (measured := reasons.measured(device)) is not None:
                devices[device] = measured.spec.name
        self._follow_windows(devices, moment.event.at_s)

    @staticmethod
    def _add(story: Story, at_s: float, reason: Reason | None) -> None:
        last = story.intervals[-1] if story.intervals else None
        if last is not None and last.to_s is None:
            if reason is not None and alike(last.reason, reason):
                return
            last.to_s = at_s
        if reason is not None:
            story.intervals.append(Interval(at_s, reason))

    def _follow_windows(self, now: dict[str, str], at_s: float) -> None:
        for device, window in list(self._windows.items()):
            if now.get(device) != window.job:
                self.explained.windows.append(replace(window, to_s=at_s))
                del self._windows[device]
        for device, job in now.items():
            if device not in self._windows:
                self._windows[device] = Window(device, job, at_s, None)

    def _remark(self, moment: Moment) -> None:
        """What happened to a job beyond what it does."""
        event, at_s = moment.event, moment.event.at_s
        for command in moment.commands:
            if isinstance(command, ProfileJob):
                self._asked[command.id] = command.job
            elif isinstance(command, KillJob) and command.reason:
                self._say(command.job, at_s, f"was stopped: {command.reason}")
        match event:
            case JobExited():
                self._exited(moment, event)
            case Profiled() if event.error and event.command in self._asked:
                self._say(self._asked[event.command], at_s, f"its measurement came to nothing: {event.error}")
            case Refused():
                for name, job in moment.core.jobs.items():
                    if job.history and job.history[-1].at_s == at_s and job.history[-1].cause == event.error:
                        self._say(name, at_s, f"could not be started: {event.error}")

    def _exited(self, moment: Moment, event: JobExited) -> None:
        again = moment.core.jobs[event.job].state is JobState.QUEUED
        then = "; it starts again" if again else ""
        if event.outcome is Outcome.COMPLETED:
            self._say(event.job, event.at_s, "completed")
            return
        reason = f": {event.reason}" if event.reason else ""
        self._say(event.job, event.at_s, f"attempt {event.attempt} ended ({event.outcome.value}){reason}{then}")

    def _say(self, job: str, at_s: float, words: str) -> None:
        self.explained.stories[job].remarks.append((at_s, words))


def alike(one: Reason, other: Reason) -> bool:
    """Whether two reasons, one after the other, are told as one."""
    if replace(one, speeds=(), because=None) != replace(other, speeds=(), because=None):
        return False
    return _near(one.speeds, other.speeds) and _alike(one.because, other.because)


def _alike(one: Because | None, other: Because | None) -> bool:
    if one is None or other is None:
        return one is other
    if one.why is not other.why:
        return False
    if one.why in _MOVING:
        return True
    excesses = (one.excess or 0.0,), (other.excess or 0.0,)
    same = (one.jobs, one.instead, one.needs) == (other.jobs, other.instead, other.needs)
    return same and _near(one.speeds, other.speeds) and _near(*excesses)


def _near(some: tuple[float, ...], others: tuple[float, ...]) -> bool:
    return len(some) == len(others) and all(abs(one - other) < _NEAR for one, other in zip(some, others, strict=True))


def _joined(intervals: list[Interval]) -> list[Interval]:
    """Without those that were only on the way to the next, and what is alike on both sides of them as one."""
    kept: list[Interval] = []
    for each in intervals:
        is_last = each is intervals[-1]
        if not is_last and each.to_s is not None and each.to_s - each.from_s < _SHORTEST_S:
            continue
        if kept and alike(kept[-1].reason, each.reason) and each.from_s - (kept[-1].to_s or 0.0) < _SHORTEST_S:
            kept[-1].to_s = each.to_s
        else:
            kept.append(each)
    return kept
