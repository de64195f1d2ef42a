"""An attempt of a job in virtual time: how much of its work is done, and where its iterations end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from ecoshare.base.attempt import Usage
from ecoshare.base.service import RequestSource
from ecoshare.core.settings.service_targets import TargetWatch
from ecoshare.core.turns import Contender
from ecoshare.lane.serving.batch_worker import AnswerTimes, batch_size
from ecoshare.lane.serving.request_intervals import RequestInterval, interval
from ecoshare.lane.serving.request_queue import QueueFull, RequestQueue, ServiceRequest, Waiting
from ecoshare.lane.serving.request_record import RequestRecorder
from ecoshare.lane.serving.request_source import arrival_times
from ecoshare.simulation.traces.job_trace import AnswerTime, TraceJob, drawn_ratio


class Claim(NamedTuple):
    """Times with which a service contends for the turn.

    Attributes:
        due_s: Time (s) at which the first of the waiting requests is due.
        needs_s: Time (s) that its batch takes at most.
    """

    due_s: float
    needs_s: float


class SimulatedRequests:
    """Requests of one attempt of a service. Times that are passed to the methods never decrease.

    Queue, batch sizes, estimates of their times, arrivals and record are those of a live service (`serving/`). Only the
    handler is replaced: a batch takes the time that the trace says. A request is seen after the time that the service
    needs to wake up. A busy service sees it at its next batch, so the time then costs nothing.

    Attributes:
        intervals: Record of the requests, as a live service writes it.
        batches: Number of batches that were answered.
        longest_s: Longest batch (s) of late, which decays as that of a job in a lane does.
    """

    def __init__(self, job: TraceJob, seed: str) -> None:
        """No request has come; `open` is called when the service has started.

        Args:
            job: The service, with the time of its batches.
            seed: Seed of the spread of these times.
        """
        assert job.service is not None, "it is a service"
        service = job.service
        self.intervals: list[RequestInterval] = []
        self.batches, self.longest_s = 0, 0.0
        self._service, self._spread = service, job.spread
        self._answer = job.answer or AnswerTime(job.phases[0].iteration_s)
        self._source = service.requests or RequestSource()
        self._sizes = service.batch_sizes or (1,)
        self._draws = Random(seed)
        self._queue = RequestQueue(service.queue)
        self._known = AnswerTimes()
        self._clock_s = 0.0
        self._record = RequestRecorder("", clock=lambda: self._clock_s, append=self._keep)
        self._scheduled: Iterator[float] = iter(())
        self._opened_s = math.inf
        self._wake_up_s = self._answer.wake_up_s
        self._batch: list[ServiceRequest] = []
        self._began_s = 0.0
        self._sent = 0  # requests of the clients of a closed loop
        self.next_s = math.inf
        """Time (s) at which the next request is seen; infinite if none is scheduled."""

    @property
    def is_open(self) -> bool:
        """Whether requests may come."""
        return self._opened_s < math.inf

    @property
    def is_over(self) -> bool:
        """Whether the last request has its answer."""
        clients_are_done = self._sent >= self._source.count if self._source.clients else True
        ends = self._source.ends and clients_are_done
        return self.is_open and ends and self.next_s == math.inf and not self._batch and self._queue.waiting() is None

    def open(self, now_s: float) -> None:
        """Let the first requests come: the service has started."""
        self._opened_s = now_s
        if self._source.clients:
            self._send(now_s)
        elif self._service.requests is not None:
            self._scheduled = arrival_times(self._source)
            self._schedule()

    def claim(self, now_s: float) -> Claim | None:
        """Claim of the service on the turn; None if no request waits."""
        self._arrive(now_s)
        if self._batch:  # it was cut when the service was parked
            return Claim(self._batch[0].due_s, self._known.upper_s(len(self._batch)))
        waiting = self._queue.waiting()
        return None if waiting is None else Claim(waiting.due_s, self._known.upper_s(self._size(waiting, now_s)))

    def begin(self, now_s: float) -> float:
        """Begin the next batch; return the time (s) that it takes at speed 1. A request waits.

        A batch that was cut begins again.
        """
        self._arrive(now_s)
        self._note(now_s)
        if not self._batch:
            self._batch = self._queue.take(lambda waiting: self._size(waiting, now_s))
            self._record.called(len(self._batch))
        self._began_s = now_s
        return self._answer.mean_s(len(self._batch)) * drawn_ratio(self._spread, self._draws)

    def answered(self, now_s: float) -> Claim | None:
        """End the batch. Return the claim for the next one; None if no request waits at this moment.

        Clients of a closed loop see their answers and send again after that.
        """
        self._arrive(now_s)
        self._note(now_s)
        size, took_s = len(self._batch), now_s - self._began_s
        self._known.learn(size, took_s)
        self._record.took(size, took_s)
        for each in self._batch:
            self._record.answered(each.arrived_s, each.due_s, now_s)
        self._batch = []
        self.batches += 1
        self.longest_s = max(took_s, 0.95 * self.longest_s)
        claim = self.claim(now_s)
        self._send(now_s)
        return claim

    def close(self, now_s: float) -> None:
        """Fail the requests that wait and those of the batch, and write the record."""
        self._note(now_s)
        self._record.failed(len(self._queue.close("the service has ended")) + len(self._batch))
        self._batch, self.next_s = [], math.inf
        self._record.write()

    def _size(self, waiting: Waiting, now_s: float) -> int:
        return batch_size(self._sizes, waiting.number, waiting.due_s - now_s, self._known.upper_s)

    def _arrive(self, now_s: float) -> None:
        """Take in the scheduled requests up to now."""
        while self.next_s <= now_s:
            self._put(self.next_s, self.next_s - self._wake_up_s)
            self._schedule()

    def _schedule(self) -> None:
        self.next_s = self._opened_s + next(self._scheduled, math.inf) + self._wake_up_s

    def _send(self, now_s: float) -> None:
        """Let each client of a closed loop without an open request send one. A refused one waits for an answer."""
        while self._sent < (self._source.count or math.inf) and self._open() < self._source.clients:
            self._sent += 1
            if not self._put(now_s, now_s):
                return

    def _open(self) -> int:
        waiting = self._queue.waiting()
        return len(self._batch) + (waiting.number if waiting else 0)

    def _put(self, at_s: float, arrived_s: float) -> bool:
        """Add a request that has come before. Return whether it was accepted."""
        self._note(at_s)
        try:
            _, waiting = self._queue.put(None, arrived_s, arrived_s + self._service.p99_s)
        except QueueFull as full:
            self._record.refused(full.waiting)
            return False
        self._record.arrived(waiting)
        return True

    def _note(self, at_s: float) -> None:
        """Move the clock of the record; write an interval that is over."""
        if (left_s := self._record.left_s()) <= at_s - self._clock_s:
            self._clock_s += max(0.0, left_s)
            self._record.write()
        self._clock_s = max(self._clock_s, at_s)

    def _keep(self, _path: Path, line: bytes) -> None:
        found = interval(line)
        assert found is not None, "the recorder writes what the reader reads"
        self.intervals.append(found)


_NEARLY = 1e-9
"""Tolerance for rounding, relative to an iteration: an iteration this close to its end is over."""


@dataclass(slots=True, eq=False)
class SimulatedAttempt:
    """An attempt of a job in its lane. Work is in seconds alone on the device of the trace.

    Attributes:
        left_s: Work (s) that is left.
        began_left_s: Work (s) that was left when the attempt began.
        work_s: Work (s) of the whole job.
        cap_bytes: Most memory that the attempt may use.
        held_s: Time (s) for which this attempt has held the turn.
        service_s: Service on the lane's clock: `held_s` / weight, from the value at which the attempt joined.
        since_s: Time (s) at which the attempt began to wait.
        told_s: Part of `held_s` that the core knows.
        speed: Work done in a second of the turn.
        steps: Number of values that the job reports in all.
        reported: Number of values reported so far.
        starts_s: Time (s) until which the attempt starts.
        is_killed: Whether the attempt was killed, and its end is to come.
        pace: Time of the present iteration / its mean. It varies in a lane with services only.
        past_longest_s: Longest iteration (s) of late, which decays as in a live lane.
        draws: Random numbers for the pace; None until it varies, since most attempts need none.
        back: Whether the attempt had the turn before, left it, and has not had it since.
        is_inside: Whether its turn was cut inside an iteration, in a lane with services.
    """

    job: TraceJob
    attempt: int
    lanes: tuple[int, ...]
    left_s: float
    began_left_s: float
    work_s: float
    cap_bytes: int
    rank: int = 0
    weight: float = 1.0
    held_s: float = 0.0
    service_s: float = 0.0
    since_s: float = 0.0
    told_s: float = 0.0
    speed: float = 1.0
    handovers: int = 0
    steps: int = 0
    reported: int = 0
    starts_s: float = 0.0
    is_killed: bool = False
    pace: float = 1.0
    past_longest_s: float = 0.0
    draws: Random | None = None
    back: bool = False
    is_inside: bool = False

    @property
    def rate(self) -> float:
        """Work done in a second of the turn, in this iteration."""
        return self.speed / self.pace

    def vary(self) -> None:
        """Draw the pace of the next iteration; the present one has ended."""
        self.past_longest_s = max(self.iteration_s / self.rate, 0.95 * self.past_longest_s)
        if self.draws is None:
            self.draws = Random(f"{self.job.name}/{self.attempt}")
        self.pace = drawn_ratio(self.job.spread, self.draws)

    @property
    def wants_turn(self) -> bool:
        """Whether the job has the turn or waits for it: a job without requests always does."""
        return True

    @property
    def is_service(self) -> bool:
        """Whether the job is a service."""
        return False

    @property
    def due_s(self) -> float:
        """Infinity: no answer is due."""
        return math.inf

    @property
    def needs_s(self) -> float:
        """Time (s) that the job runs at least once it has the turn."""
        return self.longest_s

    @property
    def longest_s(self) -> float:
        """Longest iteration (s) of late, at least the mean of the present phase."""
        return max(self.past_longest_s, self.iteration_s / self.speed)

    def contender(self, slot: int) -> Contender:
        """Job as `core/turns.py` sees it, in a slot."""
        return Contender(slot, self.rank, self.service_s, self.since_s, self.back, self.needs_s, self.due_s)

    @property
    def report_left_s(self) -> float:
        """Work (s) until the next reported value; infinite if no value is left."""
        if self.reported >= self.steps:
            return math.inf
        whole_s = self.work_s - self.job.startup_s
        return (self.reported + 1) * whole_s / self.steps - (whole_s - self.left_s)

    @property
    def has_report(self) -> bool:
        """Whether the next value is ready to report."""
        return self.report_left_s <= _NEARLY * self.work_s

    @property
    def iteration_s(self) -> float:
        """Length (s) of an iteration of the present phase, alone."""
        return self._phase()[2]

    def boundary_s(self) -> float:
        """Work (s) until the next boundary; 0 at a boundary. The time before the first iteration has no boundaries."""
        done_s, _, iteration_s = self._phase()
        if iteration_s <= 0.0:
            return 0.0
        return max(0.0, max(1 if done_s < 0.0 else 0, math.ceil(done_s / iteration_s - _NEARLY)) * iteration_s - done_s)

    def next_boundary_s(self, least_s: float = 0.0) -> float:
        """Work (s) until the first boundary after this moment at which at least `least_s` of work (s) has been done."""
        done_s, iterations, iteration_s = self._phase()
        if iteration_s <= 0.0:
            return self.left_s
        ahead = max(0, math.floor(done_s / iteration_s + _NEARLY)) + 1
        wanted = math.ceil((done_s + least_s) / iteration_s - _NEARLY)
        return max(ahead, min(wanted, iterations)) * iteration_s - done_s

    def turn_s(self, work_s: float) -> float:
        """Work (s) until the first boundary at which `work_s` has been done: at least one iteration."""
        done_s, iterations, iteration_s = self._phase()
        if iteration_s <= 0.0:
            return work_s
        ahead = max(0, math.floor(done_s / iteration_s + _NEARLY)) + 1
        wanted = math.ceil((done_s + work_s) / iteration_s - _NEARLY)
        return max(min(max(ahead, wanted), iterations) * iteration_s - done_s, min(iteration_s, self.left_s))

    def usage(self) -> Usage:
        """Usage of this attempt so far."""
        first, last = self._iterations(self.began_left_s), self._iterations(self.left_s)
        count = last - first
        # Real jobs count the same way: from the first boundary to the last.
        span_s = max(0.0, self.held_s - (0.0 if first else self.job.startup_s)) * (1.0 - 1.0 / count) if count else 0.0
        return Usage(
            iterations=count,
            held_s=self.held_s,
            span_s=span_s,
            peak_bytes=self.peak_bytes,
            handovers=self.handovers,
            left_s=self._expected_s(),
            longest_iteration_s=self.longest_s,
        )

    @property
    def peak_bytes(self) -> int:
        """Largest memory (bytes) of the attempt; 0 if the trace does not say."""
        return 0 if self.job.memory is None else min(self.cap_bytes, self.job.memory.peak_bytes)

    @property
    def phase_left_s(self) -> float:
        """Work (s) until the next phase, at which iterations change; infinite if they stay the same."""
        if len(self.job.phases) == 1:
            return math.inf
        done_s, iterations, iteration_s = self._phase()
        left_s = iterations * iteration_s - done_s
        return left_s if left_s < self.left_s - _NEARLY else math.inf

    def _expected_s(self) -> float | None:
        """Turn time (s) still needed if all epochs take as long as the present ones; None for a job of one phase.

        Later epochs may differ, but a real job cannot know that. The iterations of a single phase tell it already.
        """
        return None if len(self.job.phases) == 1 else expected_s(self.job, self.left_s)

    def _phase(self) -> tuple[float, int, float]:
        """Work (s) done in the present phase, negative before the first; its iterations; seconds of one."""
        done_s = self.work_s - self.left_s - self.job.startup_s
        for phase in self.job.phases:
            whole_s = phase.iterations * phase.iteration_s
            if done_s < whole_s * (1.0 - _NEARLY):
                break
            done_s -= whole_s
        else:
            done_s += whole_s
        return done_s, phase.iterations, phase.iteration_s

    def _iterations(self, left_s: float) -> int:
        """Number of iterations done when `left_s` of work is left."""
        if left_s <= 0.0:
            return self.job.iterations
        done_s, count = self.work_s - left_s - self.job.startup_s, 0
        for phase in self.job.phases:
            if done_s <= 0.0:
                break
            whole = int(done_s / phase.iteration_s + _NEARLY) if phase.iteration_s else phase.iterations
            count += min(phase.iterations, whole)
            done_s -= phase.iterations * phase.iteration_s
        return count


def expected_s(job: TraceJob, left_s: float) -> float:
    """Turn time (s) that a job still needs if all its epochs take as long as the present; `left_s` without epochs."""
    done_s = job.service_s - left_s - job.startup_s
    epochs, epoch_s = 0.0, 0.0
    for phase in job.phases:
        if phase.epoch_iterations is None:
            return left_s
        whole_s = phase.iterations * phase.iteration_s
        if done_s < whole_s * (1.0 - _NEARLY):
            epoch_s = epoch_s or phase.epoch_iterations * phase.iteration_s
            epochs += (1.0 - max(0.0, done_s) / whole_s) * phase.iterations / phase.epoch_iterations
        done_s = min(0.0, done_s - whole_s) if epoch_s else done_s - whole_s
    return epochs * epoch_s + max(0.0, left_s - job.service_s + job.startup_s)


@dataclass(slots=True, eq=False)
class ServiceAttempt(SimulatedAttempt):
    """An attempt of a service. `left_s` is the work (s) that is left of the batch in the handler.

    Attributes:
        requests: Requests of the service.
        claim: Claim on the turn; None while no request waits.
        watch: Watch over the target; None before the first request may come.
        watched: Number of intervals that the watch has seen.
    """

    requests: SimulatedRequests = field(kw_only=True)
    claim: Claim | None = None
    watch: TargetWatch | None = None
    watched: int = 0

    def vary(self) -> None:
        """Do nothing: the time of a batch varies, which `requests` draws."""

    @property
    def wants_turn(self) -> bool:
        """Whether the service has the turn or waits for it."""
        return self.claim is not None

    @property
    def is_service(self) -> bool:
        """True."""
        return True

    @property
    def due_s(self) -> float:
        """Time (s) at which the next answer is due."""
        return math.inf if self.claim is None else self.claim.due_s

    @property
    def needs_s(self) -> float:
        """Time (s) that the next batch takes at most."""
        return 0.0 if self.claim is None else self.claim.needs_s

    @property
    def longest_s(self) -> float:
        """Longest batch (s) of late."""
        return self.requests.longest_s

    def boundary_s(self) -> float:
        """Work (s) until the batch ends."""
        return self.left_s

    def next_boundary_s(self, least_s: float = 0.0) -> float:
        """Work (s) until the batch ends."""
        return self.left_s

    @property
    def phase_left_s(self) -> float:
        """Infinity: a service has no phases."""
        return math.inf

    def usage(self) -> Usage:
        """Usage of this attempt so far: each batch counts as an inference iteration, as live."""
        return Usage(
            eval_iterations=self.requests.batches,
            held_s=self.held_s,
            peak_bytes=self.peak_bytes,
            handovers=self.handovers,
            longest_iteration_s=self.longest_s,
        )
