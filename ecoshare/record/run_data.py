"""All data of one run, as the value that its exports are made from, with the queries that they share.

::

    StartJob ──► Done            ──►  JobExited          an attempt, from the log
             ▲           ▲ begins ▲ ends  ▲ begins       its turns, from its trace
             asked_s     ├ train ─┤       ├ eval ─┤ …    iterations: each lasts from the previous mark to its own
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ecoshare.core.commands import Command, OpenLane, StartJob
from ecoshare.core.events import Done, Event, IterationsDone, JobExited, Refused, RunOpened
from ecoshare.lane.trace import Iteration, Kind, Mark
from ecoshare.record.energy_account import EnergyAccount
from ecoshare.record.samples import Line
from ecoshare.values.attempt import Outcome


@dataclass(frozen=True, slots=True)
class OpenedLane:
    """Lane as it was opened."""

    number: int
    device: str
    budget_bytes: int


@dataclass(frozen=True, slots=True)
class AttemptHistory:
    """Attempt of a job.

    Attributes:
        asked_s: Time (s) at which the scheduler decided to start the attempt.
        began_s: Time (s) at which its first process existed; None if there was none yet.
        ended_s: Time (s) of its end; None while it runs.
        outcome: Outcome of the attempt; None while it runs.
        peak_bytes: Largest memory (bytes) seen so far; None if none was seen.
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
        """Whether the attempt completed its work."""
        return self.outcome is Outcome.COMPLETED


class TurnSpan(NamedTuple):
    """Time span during which an attempt held the turn.

    Attributes:
        marks: Marks at the ends of the iterations.
    """

    from_s: float
    to_s: float
    marks: list[Mark]

    def iterations(self) -> Iterator[Iteration]:
        """Yield the iterations in order; none reaches beyond the turn."""
        from_s = self.from_s
        for kind, at_s in self.marks:
            to_s = min(max(at_s, from_s), self.to_s)
            yield Iteration(kind, from_s, to_s)
            from_s = to_s


@dataclass(frozen=True, slots=True)
class RunData:
    """Data of one run, finished or not.

    Attributes:
        summary: Summary as described in docs/summary.md.
        entries: Events and commands of the log, then the `unlogged` entries.
        samples: Sessions and samples of the meters.
        account: Joules of the run over time.
        traces: Marks by job and attempt; an attempt without a trace is left out, or has no marks.
        environment: Content of environment.json; exports show only named fields of it.
        unlogged: Number of entries at the end that are not in the log: exits and values from the jobs' folders.
    """

    summary: dict[str, Any]
    entries: list[Event | Command] = field(default_factory=list)
    samples: list[Line] = field(default_factory=list)
    account: EnergyAccount = field(default_factory=EnergyAccount)
    traces: dict[tuple[str, int], list[Mark]] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    unlogged: int = 0

    def logged(self) -> list[Event | Command]:
        """Entries of the log, which the core's decisions were made from."""
        return self.entries[: len(self.entries) - self.unlogged]

    def lanes(self) -> dict[int, OpenedLane]:
        """Lanes by number; in a resumed run, a lane is as it was last opened."""
        opened = (entry for entry in self.entries if isinstance(entry, OpenLane))
        return {entry.lane: OpenedLane(entry.lane, entry.device, entry.budget_bytes) for entry in opened}

    def attempts(self) -> list[AttemptHistory]:
        """All attempts, in the order of their start commands."""
        return _attempts(self.entries)

    def turns(self, attempt: AttemptHistory) -> list[TurnSpan]:
        """Turns of an attempt; empty if its trace is not known."""
        end_s = self.end_s() if attempt.ended_s is None else attempt.ended_s
        return list(_turns(self.traces.get((attempt.job, attempt.number), []), end_s))

    def end_s(self) -> float:
        """Time (s) of the last event, sample or mark."""
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
                for key in going.values():  # attempts of a cut-off session have no exits
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
    """Yield the turns in a trace; a last turn without an end lasts until `end_s` (job killed, or still in its turn)."""
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
            if from_s is None:  # the beginning was lost: only iterations of this turn are known
                from_s = mark.at_s if last_s is None else last_s
            inside.append(mark)
        last_s = mark.at_s
    if from_s is not None and last_s is not None:
        yield TurnSpan(from_s, max(last_s, end_s), inside)
