"""All data of one run, as the value that its exports are made from, with the queries that they share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ecoshare.lane.trace import Iteration, Kind, Mark
from ecoshare.record.job_history import AttemptHistory
from ecoshare.record.logs_and_metrics import JobOutput
from ecoshare.record.run_energy import RunEnergy
from ecoshare.record.run_history import RunHistory
from ecoshare.record.run_summary import RunSummary
from ecoshare.record.samples import Line, Sample
from ecoshare.record.turn_account import TurnAccount
from ecoshare.serving.request_intervals import RequestInterval
from ecoshare.values.allocation_chain import AllocationChain


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
        summary: Result of the run.
        history: History of the run, from its log.
        samples: Sessions and samples of the meters of all devices; those of each device are in order.
        energy: Joules of the run over time, by device.
        traces: Marks by job and attempt; an attempt without a trace is left out, or has no marks.
        environment: Content of environment.json; exports show only named fields of it.
        requests: Intervals of the requests of each service, by the name of its job.
        chain: Chain of allocations that the run went through; None for none.
        account: Account of the turns of all attempts; None if they have no traces, or too long ones.
        output: Output of the jobs, for a report.
    """

    summary: RunSummary
    history: RunHistory = field(default_factory=RunHistory)
    samples: list[Line] = field(default_factory=list)
    energy: RunEnergy = field(default_factory=RunEnergy)
    traces: dict[tuple[str, int], list[Mark]] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    requests: dict[str, list[RequestInterval]] = field(default_factory=dict)
    chain: AllocationChain | None = None
    account: TurnAccount | None = None
    output: JobOutput = field(default_factory=JobOutput)

    @property
    def devices(self) -> list[str]:
        """Names of the devices, in the order of the plan."""
        return [each.name for each in self.summary.devices]

    def samples_of(self, device: str) -> list[Sample]:
        """Samples of one device, in order."""
        return [line for line in self.samples if isinstance(line, Sample) and line.device == device]

    def turns(self, attempt: AttemptHistory) -> list[TurnSpan]:
        """Turns of an attempt; empty if its trace is not known."""
        end_s = self.end_s() if attempt.ended_s is None else attempt.ended_s
        return list(_turns(self.traces.get((attempt.job, attempt.number), []), end_s))

    def end_s(self) -> float:
        """Time (s) of the last event, sample or mark."""
        traced = (marks[-1].at_s for marks in self.traces.values() if marks)
        return max([self.history.end_s, *(line.at_s for line in self.samples), *traced])


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
        elif mark.kind is not Kind.WAITS:
            if from_s is None:  # the beginning was lost: only iterations of this turn are known
                from_s = mark.at_s if last_s is None else last_s
            inside.append(mark)
        last_s = mark.at_s
    if from_s is not None and last_s is not None:
        yield TurnSpan(from_s, max(last_s, end_s), inside)
