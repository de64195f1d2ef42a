"""Ends of attempts and of jobs: another attempt follows, a trial pauses, or the job ends.

::

    JobExited ──► COMPLETED                      it did its work, or is a service that may end now
              ──► PRUNED                         early stopping ended it
              ──► QUEUED                         another attempt follows: a retry, or it gave its place away
              ──► PAUSED                         a trial at a rung
              ──► CANCELLED                      the user stopped the run, or cancelled the job
              ──► FAILED                         anything else

`Stops` begins an end, `JobEnds` completes it. A failed device and the end of all other work end jobs, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ecoshare.base.attempt import WORK_OVER, Outcome, Usage
from ecoshare.base.measurement import JobPhase
from ecoshare.core.commands import Command, DropJob, KillJob
from ecoshare.core.events import DeviceFailed, Event, JobExited
from ecoshare.core.placement.strategy import PlacementStrategy
from ecoshare.core.records import Job, JobState, LaneState
from ecoshare.core.run_state import RunState
from ecoshare.core.settings.power_budget import PowerBudget
from ecoshare.core.settings.profiling_windows import Profiling
from ecoshare.core.settings.setting_selection import SettingSelector
from ecoshare.core.sweeps import Sweeps


class Stops:
    """Stops of single jobs."""

    def __init__(self, placement: PlacementStrategy, next_id: Callable[[], int]) -> None:
        """No stop so far; `next_id` returns the id of the next command."""
        self._placement, self._next_id = placement, next_id

    def for_now(self, job: Job, at_s: float, reason: str, at_once: bool) -> KillJob:
        """End an attempt that another attempt will follow."""
        self._placement.stops(job)
        job.again = True
        job.move(JobState.STOPPING, at_s, reason)
        return KillJob(self._next_id(), job.spec.name, job.attempt, at_once, reason)

    def parked(self, job: Job, at_s: float, reason: str, again: bool = False) -> KillJob:
        """Kill a parked job: it has no place in which it could end at a boundary."""
        self._placement.waiting.remove(job)
        job.again = again
        job.move(JobState.STOPPING, at_s, reason)
        return KillJob(self._next_id(), job.spec.name, job.attempt, True, reason)

    def for_good(self, job: Job, at_s: float, reason: str, at_once: bool) -> list[KillJob]:
        """End an attempt that no other one will follow.

        Args:
            job: Job with a place.
            at_s: Present time (s).
            reason: Reason in words.
            at_once: Whether the job is killed now, even if it stops already.
        """
        job.again = False
        if job.state is not JobState.STOPPING:
            self._placement.stops(job)
            job.move(JobState.STOPPING, at_s, reason)
        elif not at_once:
            return []
        return [KillJob(self._next_id(), job.spec.name, job.attempt, at_once, reason)]

    def neighbours(self, culprit: Job, event: JobExited) -> list[Command]:
        """Restart all jobs that shared a context with the culprit: its unclean death may have corrupted them."""
        devices = set(culprit.device_names)
        reason = f"suspect: {culprit.spec.name} died beside it ({event.reason})"
        return [
            self.for_now(job, event.at_s, reason, at_once=True)
            for lane in self._placement.lane_index.lanes.values()
            if lane.device.name in devices
            for job in lane.jobs.values()
            if job.state in (JobState.STARTING, JobState.RUNNING)
        ]

    def all_jobs(
        self,
        at_s: float,
        reason: str,
        state: JobState,
        end: Callable[[Job, JobState, float, str], None],
        at_once: bool = False,
        aside: Iterable[Job] = (),
    ) -> list[KillJob]:
        """End all jobs for good, those with a place at their next boundaries.

        Args:
            at_s: Present time (s).
            reason: Reason in words.
            state: State of jobs without a process, which end now.
            end: Ends such a job.
            at_once: Whether jobs with a place are killed now, even those that stop already.
            aside: Jobs that neither wait nor have a place: paused trials, and jobs that the user holds.
        """
        waiting = list(self._placement.waiting)
        parked = [job for job in waiting if job.state is JobState.PARKED]
        for job in [*waiting, *aside]:
            if job.state is not JobState.PARKED:
                end(job, state, at_s, reason)
        commands = [self.parked(job, at_s, reason) for job in parked]
        for job in self._placement.lane_index.placed_jobs():
            commands += self.for_good(job, at_s, reason, at_once)
        return commands


MOST_LOSSES = 3
"""Attempts that may be lost through no fault of the job. The next loss ends the job."""

MOST_FALSE_STARTS = 5
"""Failures of a service in a row, each soon after its start and before its first answer. The next one ends it."""

FALSE_START_S = 10.0
"""Longest time (s) from the start of a service to a failure that counts as a false start."""

SHORT_OF_MEMORY = frozenset({Outcome.OUT_OF_MEMORY, Outcome.OUTGREW})
"""Outcomes of an attempt for lack of memory."""

_FAILURES = frozenset({Outcome.FAILED, Outcome.CRASHED, *SHORT_OF_MEMORY, Outcome.TIMED_OUT})

_LOSSES = frozenset({Outcome.LOST, Outcome.MOVED_OUT, Outcome.NOT_RESUMED, Outcome.DEVICE_FAILED})

NO_FAULT_OF_ITS_OWN = frozenset({Outcome.STOPPED, *_LOSSES})
"""Outcomes with which an attempt ends because of other jobs, of ecoshare or of the machine."""


def again(job: Job, outcome: Outcome, could_have_more: bool) -> bool:
    """Whether another attempt follows an attempt with this outcome. The counts of the job are updated.

    A job that could have had more memory begins again once, with all memory of a device. The limit of its allocator, or
    the jobs beside it, caused its first end.

    Args:
        job: Job of the attempt.
        outcome: Outcome of the attempt.
        could_have_more: Whether the job had less memory than all that a job can have.
    """
    if outcome is Outcome.STOPPED:
        return job.again
    if outcome in _LOSSES:
        job.losses += 1
        job.deaths += outcome is Outcome.LOST
        return job.losses <= MOST_LOSSES
    if outcome in SHORT_OF_MEMORY and (job.again or (could_have_more and not job.whole_device)):
        job.whole_device = True
        return True
    if outcome in _FAILURES:
        job.failures += 1
        job.false_starts = job.false_starts + 1 if _is_false_start(job) else 0
        return job.failures <= job.spec.retries and job.false_starts <= MOST_FALSE_STARTS
    return False


def _is_false_start(job: Job) -> bool:
    """Whether a service has failed soon after its start, without an answer: it would do so again and again."""
    if job.spec.service is None or job.usage.done:
        return False
    began_s = next((step.at_s for step in reversed(job.history) if step.after is JobState.STARTING), job.told_s)
    return job.told_s - began_s <= FALSE_START_S


class DeviceFailures:
    """Failed devices of a run.

    ::

        DeviceFailed ──► lanes CLOSED ──► jobs with a place there:  KillJob at once, and another attempt follows
                                      ──► jobs that are parked:     the same, since their memory belongs to the device
                                      ──► window, measurement,
                                          setting, question:        dropped; a later answer is ignored
                                      ──► jobs that never fit now:  FAILED, and the reason names the device

    A failed device does not come back in this run. If none is left, all jobs end, and a resumed run takes them up.

    Attributes:
        reasons: Reason of each failure, by the name of the device.
        over: Reason why all jobs end: no device is left. Empty while there is one.
    """

    def __init__(
        self,
        placement: PlacementStrategy,
        profiling: Profiling,
        settings: SettingSelector | PowerBudget,
        state: RunState,
        stops: Stops,
        next_id: Callable[[], int],
    ) -> None:
        """No device has failed."""
        self._placement, self._profiling, self._settings = placement, profiling, settings
        self._state, self._stops, self._next_id = state, stops, next_id
        self._lane_index, self._fit = placement.lane_index, placement.fit
        self._hit: dict[Job, int] = {}  # last attempt of each job that had a device fail
        self.reasons: dict[str, str] = {}
        self.over = ""

    def ignores(self, event: Event) -> bool:
        """Whether an event answers a command that was dropped with its device."""
        command = getattr(event, "command", None)
        if command not in self._state.dropped:
            return False
        self._state.dropped.remove(command)
        return True

    def failed(self, event: DeviceFailed, pauses: Callable[[Job], bool]) -> list[KillJob]:
        """Take a device out of the run.

        Args:
            event: The failure. A second one of the same device changes nothing.
            pauses: Whether a trial that stops pauses at a rung.

        Returns:
            Commands that end the attempts which used the device.
        """
        name = event.device
        if name in self.reasons:
            return []
        self.reasons[name] = event.reason
        lanes = self._lane_index.devices[name]
        self._drop(name)
        for lane in lanes:
            self._lane_index.closed(lane)
            if lane.state is not LaneState.CLOSED:  # a lane that could not be opened is closed already
                lane.move(LaneState.CLOSED, event.at_s, event.reason)
        reason = f"{name} failed: {event.reason}"
        if not self._state.stopping and not self._lane_index.limits()[1]:
            self.over, self._state.stopping = f"no device is left: {reason}", True
        inside = {job.spec.name: job for lane in lanes for job in lane.jobs.values()}
        parked = [job for job in self._placement.waiting if job.parked_in in lanes]
        commands = [self._end(job, event.at_s, reason, pauses) for job in inside.values()]
        again = not self._state.stopping
        commands += [self._stops.parked(job, event.at_s, reason, again) for job in parked]
        self._hit.update({job: job.attempt for job in (*inside.values(), *parked)})
        self._placement.device_failed(name)
        return commands

    def _end(self, job: Job, at_s: float, reason: str, pauses: Callable[[Job], bool]) -> KillJob:
        """Kill a job with a place on the device at once, even if it stops: it may never reach a boundary."""
        if job.state is not JobState.STOPPING:
            command = self._stops.for_now(job, at_s, reason, at_once=True)
            job.again = not self._state.stopping
            return command
        pruned = not (job.again or job.cancelled or self._state.stopping or pauses(job))
        return KillJob(self._next_id(), job.spec.name, job.attempt, True, reason, pruned)

    def _drop(self, name: str) -> None:
        """Forget the commands that only this device could answer."""
        opening = [command for command, lane in self._state.opening.items() if lane.device.name == name]
        for command in opening:
            del self._state.opening[command]
        self._state.dropped.update(opening, self._profiling.drop(name), self._settings.drop(name))

    def outcome(self, job: Job, outcome: Outcome) -> Outcome:
        """Outcome of an attempt that has ended: a failure on a failed device is no fault of the job."""
        if self._hit.get(job) != job.attempt or outcome.is_the_end:
            return outcome
        return Outcome.DEVICE_FAILED

    def never(self, job: Job) -> str | None:
        """Reason in words why a job could not start even if no other job ran; None if it could."""
        reason = self._state.refusal or self._fit.never(job)
        if reason is None or not self.reasons:
            return reason
        failed = "; ".join(f"{name} failed: {why}" for name, why in self.reasons.items())
        return f"{reason} ({failed})"

    def end_at_stop(self) -> tuple[JobState, str]:
        """State and reason of a job that arrives while the run is being stopped or drained."""
        doing = "stopped" if self._state.stopping else "drained"
        return (JobState.FAILED, self.over) if self.over else (JobState.CANCELLED, f"the run was being {doing}")


KILLED = 137
"""Exit code of a process that SIGKILL has ended, in the convention of a shell."""


class JobEnds:
    """Ends of the jobs of a run.

    ::

        JobExited ──► COMPLETED                      it did its work, or is a service that may end now
                  ──► PRUNED                         early stopping ended it
                  ──► QUEUED                         another attempt follows: a retry, or it gave its place away
                  ──► PAUSED                         a trial at a rung
                  ──► CANCELLED                      the user stopped the run, or cancelled the job
                  ──► FAILED                         anything else

    Attributes:
        ended: Jobs that have ended since the list was last cleared, in the order of their ends.
    """

    def __init__(self, placement: PlacementStrategy, sweeps: Sweeps, failures: DeviceFailures, state: RunState) -> None:
        self._placement, self._sweeps, self._failures, self._state = placement, sweeps, failures, state
        self._fit = placement.fit
        self.ended: list[Job] = []

    def end(self, job: Job, state: JobState, at_s: float, cause: str, has_failed: bool = False) -> None:
        """End a job that has no place.

        Args:
            job: The job.
            state: Final state of the job.
            at_s: Present time (s).
            cause: Cause in words.
            has_failed: Whether the job has failed by itself, so that its end does not come from that of the session.
        """
        ends_with_session = state is JobState.CANCELLED or (state is JobState.FAILED and self._state.stopping)
        job.resumable = ends_with_session and not (has_failed or job.cancelled)
        self._placement.ended(job)
        self._state.held.pop(job.spec.name, None)
        job.move(state, at_s, cause)
        self._fit.ended(job)
        self._state.ended(job.spec)
        self._sweeps.ended(job)
        self.ended.append(job)

    def end_unplaceable(self, at_s: float) -> None:
        """End all waiting jobs that could not start even if no other job ran."""
        for job in list(self._placement.waiting):
            if job.state is JobState.QUEUED:
                self.ends_unplaceable(job, at_s)

    def ends_unplaceable(self, job: Job, at_s: float) -> bool:
        """End a waiting job that could not start even if no other job ran. Returns whether it has ended."""
        if reason := self._failures.never(job):
            self.end(job, JobState.FAILED, at_s, reason)
        return bool(reason)

    def attempt_over(self, job: Job, event: JobExited) -> Outcome:
        """Decide what follows the end of an attempt, which has left its places.

        Returns:
            The outcome of the attempt, with failed devices taken into account.
        """
        cause, outcome = event.reason or event.outcome.value, self._failures.outcome(job, event.outcome)
        if outcome is Outcome.COMPLETED or self._completes(job, outcome, event):
            self.end(job, JobState.COMPLETED, event.at_s, cause)
        elif outcome is Outcome.PRUNED:
            self.end(job, JobState.PRUNED, event.at_s, cause)
        elif not (self._state.is_ending or job.cancelled) and self._goes_on(job, outcome):
            self.requeue(job, event.at_s, cause)
        elif outcome in NO_FAULT_OF_ITS_OWN and (job.cancelled or (self._state.stopping and not self._failures.over)):
            self.end(job, JobState.CANCELLED, event.at_s, cause)
        else:
            is_retried = self._state.stopping and not job.cancelled and self._goes_on(job, outcome)
            has_failed = not (is_retried or outcome in NO_FAULT_OF_ITS_OWN)
            self.end(job, JobState.FAILED, event.at_s, cause, has_failed)
        return outcome

    def _completes(self, job: Job, outcome: Outcome, event: JobExited) -> bool:
        """Whether the end of an attempt is the end of an open-ended service that was asked to end."""
        if not job.spec.is_open_ended or outcome not in NO_FAULT_OF_ITS_OWN:
            return False
        by_user = self._state.stopping and not self._state.had_work
        return self._state.work_over or (by_user and ended_by_user(outcome, event.exit_code))

    def _goes_on(self, job: Job, outcome: Outcome) -> bool:
        """Whether another attempt follows. The counts of the job are updated."""
        if outcome in (Outcome.STOPPED, Outcome.DEVICE_FAILED) and self._sweeps.pauses(job):
            return True
        goes_on = again(job, outcome, bool(job.lanes) and self._fit.could_have_more(job, outcome))
        if job.is_suspect:
            self._fit.suspects(job)
        return goes_on

    def requeue(self, job: Job, at_s: float, cause: str) -> None:
        """Put a job back into the queue for its next attempt, or pause it at its rung."""
        pauses = self._sweeps.pauses(job)
        job.move(JobState.PAUSED if pauses else JobState.QUEUED, at_s, cause)
        job.again = False
        job.earlier_s += job.usage.held_s
        if job.spec.movable:
            job.earlier_iterations = job.done_iterations
        job.usage, job.phase, job.boundary_s, job.stood_s = Usage(), JobPhase.TRAINS, None, 0.0
        job.lanes = ()
        if pauses:
            self._placement.pauses(job)
            self._sweeps.left(job)
        elif self._failures.reasons:
            self._placement.resumes(job, at_s)
            self.ends_unplaceable(job, at_s)
        else:
            self._placement.waits(job, at_s)


def ended_by_user(outcome: Outcome, exit_code: int | None) -> bool:
    """Whether a stopped service has ended in time, and not by SIGKILL."""
    return outcome is Outcome.STOPPED and exit_code != KILLED


class OpenServices:
    """Open-ended services of a run.

    ::

        WorkOver      ──► with a place: KillJob at a boundary ──► JobExited ──► COMPLETED
                      ──► parked: KillJob at once             ──► JobExited ──► COMPLETED
                      ──► waiting for a place:                                  COMPLETED
        StopRequested ──► a run of such services alone:           JobExited ──► COMPLETED, unless it had to be killed

    A job that could share no lane with them would wait for their ends, and they for its end. It is refused: DropJob.

    Attributes:
        kept_out: Waiting jobs that a service keeps out of a lane, open-ended or not, at the last look.
    """

    def __init__(
        self,
        state: RunState,
        stops: Stops,
        placement: PlacementStrategy,
        end: Callable[[Job, JobState, float, str], None],
        next_id: Callable[[], int],
    ) -> None:
        """No service has to end yet.

        Args:
            state: State of the run.
            stops: Stops of single jobs.
            placement: Placement of the run.
            end: Ends a job that has no process: its state, the time (s) and the cause.
            next_id: Function that returns the id of the next command.
        """
        self._state, self._stops, self._placement = state, stops, placement
        self._end, self._next_id = end, next_id
        self.kept_out: list[Job] = []

    def refuse(self, at_s: float) -> list[DropJob]:
        """End the waiting jobs that services keep out of every lane, for ever. The others are noted."""
        latency, commands = self._placement.fit.latency, list[DropJob]()
        self.kept_out = []
        for job in latency.kept_out(self._placement.waiting):
            if reason := latency.never(job):
                self._end(job, JobState.FAILED, at_s, reason)
                commands.append(DropJob(self._next_id(), job.spec.name, reason))
            else:
                self.kept_out.append(job)
        return commands

    def over(self, at_s: float) -> list[KillJob]:
        """Commands that end all services. Those without a process end at once."""
        self._state.work_over = True
        aside = list(self._state.held.values())
        return self._stops.all_jobs(at_s, WORK_OVER, JobState.COMPLETED, self._end, aside=aside)
