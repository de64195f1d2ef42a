"""Failed devices: their lanes close, and their jobs begin again on the other devices.

::

    DeviceFailed ──► lanes CLOSED ──► jobs with a place there:  KillJob at once, and another attempt follows
                                  ──► jobs that are parked:     the same, since their memory belongs to the device
                                  ──► window, measurement,
                                      setting, question:        dropped; a later answer is ignored
                                  ──► jobs that never fit now:  FAILED, and the reason names the device

A failed device does not come back in this run. If none is left, all jobs end, and a resumed run takes them up.
"""

from __future__ import annotations

from collections.abc import Callable

from ecoshare.core.commands import KillJob
from ecoshare.core.events import DeviceFailed, Event
from ecoshare.core.placement.strategy import PlacementStrategy
from ecoshare.core.power_budget import PowerBudget
from ecoshare.core.profiling_windows import Profiling
from ecoshare.core.records import Job
from ecoshare.core.run_state import RunState
from ecoshare.core.setting_selection import SettingSelector
from ecoshare.core.states import JobState, LaneState
from ecoshare.core.stops import Stops
from ecoshare.values.attempt import Outcome


class DeviceFailures:
    """Failed devices of a run.

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
