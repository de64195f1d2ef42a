"""Result of a job, derived from its history, its profile and the joules of the run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.core.job_ends import NO_FAULT_OF_ITS_OWN
from ecoshare.knowledge.profile import Profile
from ecoshare.record.accounts.alone_time import AloneTime, by_counters
from ecoshare.record.accounts.run_energy import RunEnergy
from ecoshare.record.plan_document import JobDocument, TrialDocument
from ecoshare.record.results.energy_summary import JobEnergy, job_energy, named
from ecoshare.record.results.service_summary import ServiceSummary
from ecoshare.record.run_history import JobHistory

_DEVIATIONS, _NOISE = 2.0, 0.1
"""Tolerance for a job that is faster than its profile: standard errors, plus a part of the profiled time. The second
covers other seeds, and clocks that rise when the machine cools."""

FEWEST_ITERATIONS = 20
"""Fewest iterations of a job that can show its profile to be stale."""


def too_fast(usage: Usage, profile: Profile | None) -> str:
    """Reason why a profile is stale; empty if the job was not faster than the profile allows.

    Args:
        usage: Resources that the job used. Waits for the turn do not count as working time.
        profile: Profile of the job's class; None if there is none.
    """
    working_s = usage.span_s - usage.waited_s
    if profile is None or working_s <= 0.0 or usage.done < FEWEST_ITERATIONS:
        return ""
    alone_s = profile.alone_s(usage.iterations, usage.eval_iterations)
    if alone_s is None:
        return ""
    alone_s *= (usage.done - 1) / usage.done  # the first iteration ends where the working time begins
    error = (profile.alone_error_s(usage.iterations, usage.eval_iterations) or 0.0) / alone_s
    if working_s >= alone_s * (1.0 - _DEVIATIONS * error - _NOISE):
        return ""
    return f"ran {alone_s / working_s:.1f} times as fast as its profile says it runs alone"


@dataclass(frozen=True, slots=True)
class JobSummary:
    """Result of a job; a value that is not known is None.

    Attributes:
        job_class: Class under which the profile of the job is kept.
        state: `completed`, `failed`, `cancelled` or `pruned`; `arriving`, `queued` or `running` while the run goes on.
        exit_code: Exit code as a shell gives it: 128 + n for signal n.
        attempts: Number of attempts.
        devices: Devices of the last attempt.
        lanes: Lanes of the last attempt.
        widened: Whether an attempt had more devices than the job needs. The profile of its class then tells nothing.
        iterations: Number of training iterations of the last attempt.
        eval_iterations: Number of inference iterations of the last attempt.
        by_steps: Whether `iterations` are steps of optimizers that step by turns, such as those of a GAN.
        start_s: Time (s) at which the first process existed.
        jct_s: Job completion time (s): finish - arrival.
        queue_s: Time (s) in the queue: start - arrival.
        slowdown: Wall time of its iterations, all waits for the turn included / their time alone; see `AloneTime`.
        slowdown_limit: Limit that the job file gives.
        slowdown_limit_met: Whether the limit was kept.
        interference: The same without the waits.
        alone_s: Time (s) that its iterations would have taken alone, from its first boundary to its last.
        alone_error_s: Standard error (s) of `alone_s`.
        alone_guessed_s: Part (s) of `alone_s` that is a guess, since nothing is known of such iterations alone.
        beside_s: Time (s) with the turn in iterations in which a neighbour held a turn, too.
        prepared_beside_s: The same outside of iterations.
        profile_doubt: Reason why the profile of the class is stale.
        spent_s: Time (s) from its arrival to its end by what it did, see `Spent`. The parts add up to `jct_s`. Empty
            if its turns are not known.
        stretch: Always None: not computed yet.
        held_s: Time (s) with the turn.
        preparation_s: Time (s) with the turn outside of iterations.
        handovers: Number of turns.
        longest_wait_s: Longest wait (s) for a turn.
        parks: Number of times that the job was parked.
        parked_s: Time (s) for which it was parked.
        keeps_lane: Reason why the job kept its lane to its end for its child processes. None if it did not.
        peak_memory_bytes: Largest memory (bytes) of its processes.
        energy: Energy beyond idle.
        energy_per_iteration_j: The same (J) by the iterations of both kinds.
        error: One line, for a job that did not complete.
        sweep: Sweep of a trial.
        values: Values of a trial that make it differ from the other trials.
        value: Value that a trial reported last, if finite.
        steps: Number of values that a trial reported.
        service: Requests and latencies of a service; None for any other job.
    """

    name: str
    job_class: str = field(metadata=named("class"))
    state: str = "completed"
    exit_code: int | None = None
    attempts: int = 0
    devices: tuple[str, ...] = ()
    lanes: tuple[int, ...] = ()
    widened: bool = False
    iterations: int = 0
    eval_iterations: int = 0
    by_steps: bool = False
    arrival_s: float | None = None
    start_s: float | None = None
    finish_s: float | None = None
    jct_s: float | None = None
    queue_s: float | None = None
    slowdown: float | None = None
    slowdown_limit: float | None = None
    slowdown_limit_met: bool | None = None
    interference: float | None = None
    alone_s: float | None = None
    alone_error_s: float | None = None
    alone_guessed_s: float | None = None
    beside_s: float | None = None
    prepared_beside_s: float | None = None
    profile_doubt: str | None = None
    spent_s: dict[str, float] = field(default_factory=dict)
    stretch: float | None = None
    held_s: float | None = None
    preparation_s: float | None = None
    handovers: int | None = None
    longest_wait_s: float | None = None
    parks: int = 0
    parked_s: float = 0.0
    keeps_lane: str | None = None
    peak_memory_bytes: int | None = None
    energy: JobEnergy | None = None
    energy_per_iteration_j: float | None = None
    error: str | None = None
    sweep: str | None = None
    values: dict[str, Any] = field(default_factory=dict)
    value: float | None = None
    steps: int = 0
    service: ServiceSummary | None = None

    @property
    def completed(self) -> bool:
        """Whether the job did all its work."""
        return self.state == "completed"

    @property
    def by_time(self) -> bool:
        """Whether the job shared by the time of its turns, since no iteration was seen; see `Usage.by_time`."""
        usage = Usage(self.iterations, self.eval_iterations, self.held_s or 0.0, handovers=self.handovers or 0)
        return self.service is None and not self.keeps_lane and usage.by_time

    @property
    def is_beside_its_gpu(self) -> bool:
        """Whether the job did its iterations on the processors, and took no turn on the GPU that it had.

        Scripts with a fall-back do so where torch finds no GPU, and those that choose the CPU themselves.
        """
        return _is_beside(self.devices, self.handovers, self.iterations + self.eval_iterations)

    @property
    def energy_j(self) -> float | None:
        """Energy (J) of the device that is attributed to the job; None without a meter."""
        return self.energy.value_j if self.energy is not None else None


def job_summary(
    job: JobDocument,
    history: JobHistory,
    devices: tuple[str, ...],
    lanes: int,
    energy: RunEnergy,
    state: str,
    unplaceable: str,
    profile: Profile | None,
    alone: AloneTime | None,
    spent_s: dict[str, float],
    at_settings: bool,
    end_s: float,
) -> JobSummary:
    """Result of a job.

    Args:
        job: Job or trial of the plan.
        history: History of the job from the log.
        devices: Devices of its last attempt.
        lanes: Number of lanes of a device.
        energy: Joules of the run.
        state: State of the job.
        unplaceable: Reason why the job could not start, as `RunHistory.unplaceable` gives it; empty if it could.
        profile: Profile of its class; None if there is none.
        alone: Time alone of its iterations, from the turns; None if these are not known.
        spent_s: Time (s) of the job, by what it did; empty if its turns are not known.
        at_settings: Whether the run applied settings.
        end_s: Time (s) of the last event of the run.
    """
    usage, last = history.usage, history.exit
    arrival_s, start_s, finish_s = history.arrival_s, history.start_s, history.finish_s
    is_beside = last is not None and _is_beside(devices, usage.handovers, usage.done)
    own = None if is_beside else job_energy(job.name, energy)
    counted = energy.iterations(job.name)
    is_elsewhere = profile is not None and profile.machine.device not in devices  # which may be faster
    doubt = "" if at_settings or history.widened or is_elsewhere else too_fast(usage, profile)
    if alone is None and usage.done >= 2:
        alone = by_counters(usage, 2 if at_settings else lanes, None if doubt or history.widened else profile)
    slower = alone.slowdown if alone is not None and not history.widened else None
    value = history.reports[-1][1] if history.reports else math.nan
    return JobSummary(
        name=job.name,
        job_class=job.job_class,
        state=state,
        exit_code=last.exit_code if last is not None else None,
        attempts=history.attempt,
        devices=devices,
        lanes=history.lanes,
        widened=history.widened,
        iterations=usage.iterations,
        eval_iterations=usage.eval_iterations,
        by_steps=usage.by_steps,
        arrival_s=arrival_s,
        start_s=start_s,
        finish_s=finish_s,
        jct_s=_between_s(arrival_s, finish_s),
        queue_s=_between_s(arrival_s, start_s),
        slowdown=slower,
        slowdown_limit=job.slowdown_limit,
        slowdown_limit_met=_limit_met(job.slowdown_limit, slower),
        interference=alone.interference if alone is not None and not history.widened else None,
        alone_s=alone.alone_s if alone is not None else None,
        alone_error_s=alone.error_s if alone is not None else None,
        alone_guessed_s=alone.guessed_s if alone is not None else None,
        beside_s=alone.beside_s if alone is not None else None,
        prepared_beside_s=alone.prepared_beside_s if alone is not None else None,
        profile_doubt=doubt or None,
        spent_s=spent_s,
        held_s=usage.held_s if last is not None else None,
        preparation_s=max(0.0, usage.held_s - (usage.span_s - usage.waited_s)) if last is not None else None,
        handovers=usage.handovers if last is not None else None,
        longest_wait_s=usage.longest_wait_s if last is not None else None,
        parks=len(history.parked),
        parked_s=history.parked_s(end_s),
        keeps_lane=usage.keeps_lane or None,
        peak_memory_bytes=usage.peak_bytes or energy.peak_bytes(job.name),
        energy=own,
        energy_per_iteration_j=own.value_j / counted if own and counted else None,
        error=(_error(history) or unplaceable or None) if state != "completed" else None,
        sweep=job.sweep if isinstance(job, TrialDocument) else None,
        values=job.values if isinstance(job, TrialDocument) else {},
        value=value if math.isfinite(value) else None,
        steps=len(history.reports),
    )


def _is_beside(devices: tuple[str, ...], handovers: int | None, iterations: int) -> bool:
    return handovers == 0 and iterations > 0 and any("cuda" in name for name in devices)


def job_state(history: JobHistory, stopped: bool, live: bool, is_unplaceable: bool = False) -> str:
    """State of a job; a job without an exit in a finished run was cut off with the run.

    Args:
        stopped: Whether the user stopped the run.
        live: Whether the run still goes on.
        is_unplaceable: Whether the job could not start, see `RunHistory.unplaceable`.
    """
    last = history.exit
    if last is None:
        if history.cancelled and (not live or not history.attempt or history.finish_s is not None):
            return "cancelled"
        if not live and history.is_pruned:
            return "pruned"
        if not live:
            failed = history.refusal is not None or (is_unplaceable and not stopped)
            return "failed" if failed else "cancelled"
        if history.arrival_s is None:
            return "arriving"
        return "running" if history.attempt > history.forgiven else "queued"
    if history.is_pruned and last.outcome is not Outcome.COMPLETED:
        return "pruned"
    is_stopped = stopped or bool(history.cancelled)
    if live and last.outcome is Outcome.STOPPED and not is_stopped:
        return "queued"  # it has given its place away, or pauses at a rung
    if last.outcome is Outcome.STOPPED or (last.outcome in NO_FAULT_OF_ITS_OWN and is_stopped):
        return "cancelled"
    if last.outcome is Outcome.PRUNED:
        return "pruned"
    return "completed" if last.outcome is Outcome.COMPLETED else "failed"


def _between_s(from_s: float | None, to_s: float | None) -> float | None:
    return to_s - from_s if from_s is not None and to_s is not None else None


def _error(history: JobHistory) -> str | None:
    if history.exit is not None:
        return history.exit.reason or None
    return history.refusal or history.cancelled or None


def _limit_met(limit: float | None, measured: float | None) -> bool | None:
    return None if limit is None or measured is None else measured <= limit
