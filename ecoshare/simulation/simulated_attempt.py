"""An attempt of a job in virtual time: how much of its work is done, and where its iterations end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from ecoshare.core.turns import Contender
from ecoshare.simulation.traces.job_trace import TraceJob, drawn_ratio
from ecoshare.values.attempt import Usage

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
