"""All that is known of one run, as the value that its exports are made from, and what both of them read out of it.

::

    StartJob ──► Done            ──►  JobExited          an attempt, from the log
             ▲           ▲ begins ▲ ends  ▲ begins       its turns, from its trace
             asked_s     ├ train ─┤       ├ eval ─┤ …    iterations: each lasts from the mark before it to its own
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ecoshare.core.commands import Command, OpenLane, StartJob
from ecoshare.core.events import Done, Event, IterationsDone, JobExited, Outcome, Refused, RunOpened
from ecoshare.lane.trace import Iteration, Kind, Mark
from ecoshare.record.energy_account import EnergyAccount
from ecoshare.record.samples import Line


@dataclass(frozen=True, slots=True)
class OpenedLane:
    """A lane as it was opened."""

    number: int
    device: str
    budget_bytes: int


@dataclass(frozen=True, slots=True)
class AttemptHistory:
    """An attempt of a job.

    Attributes:
        asked_s: When the scheduler decided to start it.
        began_s: When its first process existed; None where it never did, or does not yet.
        ended_s: None while it goes on.
        outcome: None while it goes on.
        peak_bytes: Largest memory seen so far; None where none was seen.
    """

    job: str
    number: int
    lanes: tuple[int, ...]
    asked_s: float
    began_s: float | None = None
    ended_s: float | None = None
    outcome: Outcome | None = None
    exit_code: int | None = None
    reason: str = ""
    peak_bytes: int | None = None

    @property
    def completed(self) -> bool:
        """Whether it did what it was started for."""
        return self.outcome is Outcome.COMPLETED


class TurnSpan(NamedTuple):
    """A time during which an attempt held the turn.

    Attributes:
        marks: The ends of its iterations.
    """

    from_s: float
    to_s: float
    marks: list[Mark]

    def iterations(self) -> Iterator[Iteration]:
        """Its iterations in order, none reaching beyond the turn."""
        from_s = self.from_s
        for kind, at_s in self.marks:
            to_s = min(max(at_s, from_s), self.to_s)
            yield Iteration(kind, from_s, to_s)
            from_s = to_s


@dataclass(frozen=True, slots=True)
class RunData:
    """One run, finished or not.

    Attributes:
        summary: As in docs/summary.md.
        entries: Events and commands of its log.
        samples: What its meters said.
        account: Its joules over time.
        traces: Marks by job and attempt; an attempt without a trace is left out, or has no marks.
        environment: Content of environment.json; only named fields of it are ever shown.
        unlogged: Number of the last entries that are not in its log: ends that were found in the jobs' folders.
    """

    summary: dict[str, Any]
    entries: list[Event | Command] = field(default_factory=list)
    samples: list[Line] = field(default_factory=list)
    account: EnergyAccount = field(default_factory=EnergyAccount)
    traces: dict[tuple[str, int], list[Mark]] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    unlogged: int = 0

    def logged(self) -> list[Event | Command]:
        """The entries as they were logged: those that were decided on."""
        return self.entries[: len(self.entries) - self.unlogged]

    def lanes(self) -> dict[int, OpenedLane]:
        """The lanes by number; of a run that was resumed, as its last session opened them."""
        opened = (entry for entry in self.entries if isinstance(entry, OpenLane))
        return {entry.lane: OpenedLane(entry.lane, entry.device, entry.budget_bytes) for entry in opened}

    def attempts(self) -> list[AttemptHistory]:
        """All attempts, in the order in which they were asked for."""
        return _attempts(self.entries)

    def turns(self, attempt: AttemptHistory) -> list[TurnSpan]:
        """The turns of an attempt; none where its trace is not known."""
        end_s = self.end_s() if attempt.ended_s is None else attempt.ended_s
        return list(_turns(self.traces.get((attempt.job, attempt.number), []), end_s))

    def end_s(self) -> float:
        """The last moment that anything is known of."""
        logged = (entry.at_s for entry in self.entries if not isinstance(entry, Command))
        traced = (marks[-1].at_s for marks in self.traces.values() if marks)
        return max([0.0, *logged, *(line.at_s for line in self.samples), *traced])


def _attempts(entries: Iterable[Event | Command]) -> list[AttemptHistory]:
    found: dict[tuple[str, int], AttemptHistory] = {}
    going: dict[str, tuple[str, int]] = {}
    starting: dict[int, tuple[str, int]] = {}
    now_s = 0.0
    for entry in entries:
        match entry:
            case RunOpened():
                for key in going.values():  # a session that was cut off has no ends; the next one is not part of it
                    found[key] = replace(found[key], ended_s=now_s, outcome=Outcome.LOST, reason="cut off with the run")
                going.clear()
                starting.clear()
            case StartJob():
                key = (entry.job, entry.attempt)
                found[key] = AttemptHistory(*key, entry.lanes, now_s)
                going[entry.job] = starting[entry.id] = key
            case Done() if entry.command in starting:
                key = starting.pop(entry.command)
                found[key] = replace(found[key], began_s=entry.at_s)
            case Refused() if entry.command in starting:
                key = starting.pop(entry.command)
                going.pop(key[0], None)
                found[key] = replace(found[key], ended_s=entry.at_s, outcome=Outcome.FAILED, reason=entry.error)
            case IterationsDone() if entry.job in going:
                key = going[entry.job]
                if (peak_bytes := entry.usage.peak_bytes or found[key].peak_bytes) != found[key].peak_bytes:
                    found[key] = replace(found[key], peak_bytes=peak_bytes)
            case JobExited() if (entry.job, entry.attempt) in found:
                going.pop(entry.job, None)
                key = (entry.job, entry.attempt)
                found[key] = replace(
                    found[key],
                    ended_s=entry.at_s,
                    outcome=entry.outcome,
                    exit_code=entry.exit_code,
                    reason=entry.reason,
                    peak_bytes=entry.usage.peak_bytes or found[key].peak_bytes,
                )
        if not isinstance(entry, Command):
            now_s = entry.at_s
    return list(found.values())


def _turns(marks: list[Mark], end_s: float) -> Iterator[TurnSpan]:
    """The turns in a trace. One without an end lasts to `end_s`: its job was killed with the turn, or still has it."""
    from_s: float | None = None
    last_s: float | None = None
    inside: list[Mark] = []
    for mark in marks:
        if mark.kind is Kind.TURN_BEGINS:
            if from_s is not None and last_s is not None:
                yield TurnSpan(from_s, last_s, inside)
            from_s, inside = mark.at_s, []
        elif mark.kind is Kind.TURN_ENDS:
            if from_s is not None:
                yield TurnSpan(from_s, mark.at_s, inside)
            from_s, inside = None, []
        else:
            if from_s is None:  # the beginning was lost: what is known of this turn is its iterations
                from_s = mark.at_s if last_s is None else last_s
            inside.append(mark)
        last_s = mark.at_s
    if from_s is not None and last_s is not None:
        yield TurnSpan(from_s, max(last_s, end_s), inside)
