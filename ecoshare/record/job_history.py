"""History of a job and of its attempts, from the log of a run.

::

    StartJob ──► Done            ──►  JobExited          an attempt, from the log
             ▲           ▲ begins ▲ ends  ▲ begins       its turns, from its trace
             asked_s     ├ train ─┤       ├ eval ─┤ …    iterations: each lasts from the previous mark to its own
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ecoshare.core.commands import StartJob
from ecoshare.core.events import JobExited
from ecoshare.core.service_targets import Missed
from ecoshare.values.attempt import WORK_OVER, Outcome, Usage
from ecoshare.values.job_spec import JobSpec
from ecoshare.values.segment import CarriedJob


@dataclass(slots=True)
class AttemptHistory:
    """Attempt of a job.

    Attributes:
        asked_s: Time (s) at which the scheduler decided to start the attempt.
        began_s: Time (s) at which its first process existed; None if there was none yet.
        ended_s: Time (s) of its end; None while it runs.
        outcome: Outcome of the attempt; None while it runs.
        peak_bytes: Largest memory (bytes) seen so far; None if none was seen.
        was_refused: Whether the attempt could not be started.
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
    was_refused: bool = False

    @property
    def completed(self) -> bool:
        """Whether the attempt completed its work."""
        return self.outcome is Outcome.COMPLETED

    @property
    def ended_badly(self) -> bool:
        """Whether the attempt ended without success. A service that served until all other jobs had ended did well."""
        if self.outcome is None or self.outcome.is_the_end:
            return False
        return self.reason != WORK_OVER


@dataclass(slots=True)
class ParkedSpan:
    """Time for which an attempt was parked, without the time that its memory took to move there.

    Attributes:
        to_s: Time (s) at which its memory was back, or at which the attempt ended; None while it is parked.
    """

    attempt: int
    from_s: float
    to_s: float | None = None


def split_by_parking(spans: Iterable[ParkedSpan], from_s: float, to_s: float) -> Iterator[tuple[float, float, bool]]:
    """Parts of a time of one attempt, in order: begin and end (s), and whether the attempt was parked."""
    for each in spans:
        if from_s <= each.from_s < to_s:
            yield from_s, each.from_s, False
            from_s = to_s if each.to_s is None else min(to_s, each.to_s)
            yield each.from_s, from_s, True
    if from_s < to_s:
        yield from_s, to_s, False


@dataclass(slots=True)
class JobHistory:
    """History of one job. A resumed run has one history for each job, over all its sessions.

    Attributes:
        spec: Specification with which the job arrived last; None before it arrives.
        arrival_s: Time (s) of the first arrival; None before it.
        start_s: Time (s) at which the first process of the job existed; None before it.
        starts: Start command of each attempt, by number.
        exits: Logged end of each attempt, by number.
        attempt: Number of the last attempt; 0 before the first.
        lanes: Lanes of the last attempt.
        exit: End of the last attempt; None while it runs, if it was refused, and if it was cut off with the run.
        refusal: Reason why the last attempt could not be started; None if it could.
        finish_s: Time (s) at which the last attempt ended or was refused; None if it has not.
        usage: Usage of the last attempt, as last reported.
        told_bytes: Largest memory of any attempt that was reported while it ran; 0 if none was.
        reports: Time (s) and value of each report of the last attempt, after those of attempts that it goes on from.
        earlier_reports: Number of those that it goes on from.
        asked_to_end_at: Number of reports when it was last asked to end; None if it never was.
        is_pruned: Whether early stopping has ended it, or has asked it to end.
        parked: Times for which its attempts were parked, in order.
        cancelled: Reason why the user, or the end of another job, has cancelled the job; empty if neither has.
        forgiven: Number of its attempts when the user asked for it to be run again. Their ends count no more.
        carried: State of the job at the beginning of the log, if the log begins with a segment in which it goes on.
        missed: Time (s) at the end of each minute in which the service missed its target, and its requests.
    """

    name: str
    spec: JobSpec | None = None
    arrival_s: float | None = None
    start_s: float | None = None
    starts: dict[int, StartJob] = field(default_factory=dict)
    exits: dict[int, JobExited] = field(default_factory=dict)
    attempt: int = 0
    lanes: tuple[int, ...] = ()
    exit: JobExited | None = None
    refusal: str | None = None
    finish_s: float | None = None
    usage: Usage = field(default_factory=Usage)
    told_bytes: int = 0
    reports: list[tuple[float, float]] = field(default_factory=list)
    earlier_reports: int = 0
    asked_to_end_at: int | None = None
    is_pruned: bool = False
    parked: list[ParkedSpan] = field(default_factory=list)
    cancelled: str = ""
    forgiven: int = 0
    carried: CarriedJob | None = None
    missed: list[tuple[float, Missed]] = field(default_factory=list)

    def arrived(self, spec: JobSpec, at_s: float) -> None:
        """Note an arrival; the job of a resumed run arrives again."""
        self.spec = spec
        self.arrival_s = at_s if self.arrival_s is None else self.arrival_s

    @property
    def widened(self) -> bool:
        """Whether an attempt had more devices than the job needs."""
        carried = () if self.carried is None else self.carried.lanes
        lanes = (carried, *(each.lanes for each in self.starts.values()))
        return self.spec is not None and any(len(each) > self.spec.gpus for each in lanes)

    @property
    def unknown_attempts(self) -> int:
        """Number of attempts that were over at the beginning of the log, so that it has no ends of them."""
        return 0 if self.carried is None else self.carried.attempt - bool(self.carried.lanes)

    def goes_on(self, carried: CarriedJob) -> None:
        """Note a job that goes on from an earlier segment, which the log has no more."""
        self.arrived(carried.spec, carried.arrival_s)
        self.carried, self.usage, self.start_s = carried, carried.usage, carried.first_start_s
        self.attempt, self.lanes = carried.attempt, carried.lanes

    def asked(self, command: StartJob) -> None:
        """Begin a new attempt, of which nothing is known yet."""
        self.attempt, self.lanes, self.starts[command.attempt] = command.attempt, command.lanes, command
        self.exit = self.refusal = self.finish_s = None
        self.usage, self.is_pruned = Usage(), False
        if self.spec is None or not self.spec.movable:
            self.reports = []
        self.earlier_reports = len(self.reports)

    def retried(self) -> None:
        """Note that the job has failed or was cancelled, and is to run again."""
        self.exit = self.refusal = self.finish_s = None
        self.cancelled, self.is_pruned, self.forgiven = "", False, self.attempt

    def began(self, at_s: float) -> None:
        """Note that a process of the job exists."""
        self.start_s = at_s if self.start_s is None else self.start_s

    def refused(self, error: str, at_s: float) -> None:
        """Note that the last attempt could not be started."""
        self.refusal, self.finish_s = error, at_s

    def dropped(self, reason: str, at_s: float, cancelled: bool = False, pruned: bool = False) -> None:
        """Note that the job never starts again. A trial that paused keeps the end of its last attempt."""
        if cancelled:
            self.exit, self.cancelled, self.finish_s = None, reason, at_s
        elif self.spec is None or not self.spec.sweep:
            self.exit, self.refusal, self.finish_s = None, reason, at_s
        self.is_pruned = pruned

    def asked_to_end(self, pruned: bool) -> None:
        """Note that an attempt is asked to end."""
        self.asked_to_end_at = len(self.reports)
        self.is_pruned = self.is_pruned or pruned

    def progressed(self, usage: Usage) -> None:
        """Note what the present attempt has used up to now."""
        self.usage, self.told_bytes = usage, max(self.told_bytes, usage.peak_bytes)

    def exited(self, event: JobExited) -> None:
        """Note the end of an attempt."""
        self.exits[event.attempt] = event
        self.resumed(event.at_s)
        self.exit, self.finish_s, self.usage = event, event.at_s, event.usage

    def was_parked(self, attempt: int, usage: Usage, at_s: float) -> None:
        """Note that an attempt is parked from now on."""
        self.usage = usage
        self.parked.append(ParkedSpan(attempt, at_s))

    def resumed(self, at_s: float) -> None:
        """Note that the job is not parked any more, if it was."""
        if self.parked and self.parked[-1].to_s is None:
            self.parked[-1].to_s = at_s

    def parked_s(self, end_s: float) -> float:
        """Time (s) for which the job was parked, over all attempts, up to `end_s`."""
        spans_s = ((end_s if each.to_s is None else each.to_s) - each.from_s for each in self.parked)
        return sum(spans_s, 0.0)
