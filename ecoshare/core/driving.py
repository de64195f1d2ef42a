"""The one way to drive the core: an event goes in, and a method of the handler carries out each command that follows.

::

    event ──► core.handle ──► commands ──► noted (log, display) ─┬► node.open_lane, start_job, apply_setting, ...
                                                                 └► run.ask_sampler, wake_at, ...

The live run, the simulator and the driver for tests differ only in what carries the commands out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ecoshare.core.commands import (
    ApplySetting,
    AskInterference,
    AskPlanner,
    AskPower,
    AskSampler,
    AskSetting,
    AwaitRequests,
    Command,
    DropJob,
    KillJob,
    LimitMemory,
    MeasureSetting,
    MoveJob,
    OpenLane,
    ParkJob,
    ProfileJob,
    ResumeJob,
    SetCaching,
    SetShares,
    ShareMemory,
    StartJob,
    WakeAt,
)
from ecoshare.core.events import Event
from ecoshare.core.scheduler import Scheduler


class NodeCommands(Protocol):
    """Carries out the commands about lanes, processes and devices of a machine. Answers go back as events.

    `core/commands.py` describes the commands. Each method gets the time (s) of the event that the command follows from.
    """

    def open_lane(self, command: OpenLane, now_s: float) -> None:
        """Open a lane; the answer is `Done` or `Refused`."""
        ...

    def start_job(self, command: StartJob, now_s: float) -> None:
        """Start an attempt; the answer is `Done` or `Refused`, and its end is `JobExited`."""
        ...

    def set_caching(self, command: SetCaching, now_s: float) -> None:
        """Let waiting jobs keep or empty their caches; the answer is `Done`, and later starts on the device wait."""
        ...

    def limit_memory(self, command: LimitMemory, now_s: float) -> None:
        """Lower the memory limit of a running job; the answer is `Done` or `Refused`."""
        ...

    def share_memory(self, command: ShareMemory, now_s: float) -> None:
        """Leave unused memory of a device to other runs; the answer is `Done`."""
        ...

    def park_job(self, command: ParkJob, now_s: float) -> None:
        """Move the memory of a job to the host; the answer is `Parked` or `Refused`."""
        ...

    def resume_job(self, command: ResumeJob, now_s: float) -> None:
        """Move the memory of a parked job back; the answer is `Resumed`."""
        ...

    def move_job(self, command: MoveJob, now_s: float) -> None:
        """Move a job to another lane; the answer is `Done` or `Refused`."""
        ...

    def set_shares(self, command: SetShares, now_s: float) -> None:
        """Set the order of the jobs of a lane; there is no answer."""
        ...

    def kill_job(self, command: KillJob, now_s: float) -> None:
        """End an attempt; the answer is its `JobExited`."""
        ...

    def profile_job(self, command: ProfileJob, now_s: float) -> None:
        """Measure a job in a window; the answer is `Profiled`."""
        ...

    def apply_setting(self, command: ApplySetting, now_s: float) -> None:
        """Set a device; the answer is `Done` or `Refused`."""
        ...

    def measure_setting(self, command: MeasureSetting, now_s: float) -> None:
        """Measure the jobs of a device; the answer is `SettingMeasured`."""
        ...

    def await_requests(self, command: AwaitRequests, now_s: float) -> None:
        """Wait until the services of a device have recovered; the answer is `Done` or `Refused`."""
        ...


class RunCommands(Protocol):
    """Carries out the commands that concern no single machine. See `NodeCommands`."""

    def drop_job(self, command: DropJob, now_s: float) -> None:
        """Forget a paused trial, which has ended; there is no answer."""
        ...

    def ask_setting(self, command: AskSetting, now_s: float) -> None:
        """Ask for the next setting of a search; the answer is `SettingAdvised`."""
        ...

    def ask_interference(self, command: AskInterference, now_s: float) -> None:
        """Ask for the speeds of co-located jobs; the answer is `InterferencePredicted`."""
        ...

    def ask_power(self, command: AskPower, now_s: float) -> None:
        """Ask for the response of a packing to power limits; the answer is `PowerPredicted`."""
        ...

    def ask_planner(self, command: AskPlanner, now_s: float) -> None:
        """Ask for the plan of a round; the answer is `Planned`."""
        ...

    def ask_sampler(self, command: AskSampler, now_s: float) -> None:
        """Ask for the next trial of a sweep; the answer is `JobArrived` or `Exhausted`."""
        ...

    def wake_at(self, command: WakeAt, now_s: float) -> None:
        """Answer with `Done` at the time of the command."""
        ...


def node_methods(node: NodeCommands) -> dict[type, Callable[..., None]]:
    """Method of a node for each kind of command that concerns a machine."""
    return {
        OpenLane: node.open_lane,
        StartJob: node.start_job,
        SetCaching: node.set_caching,
        LimitMemory: node.limit_memory,
        ShareMemory: node.share_memory,
        ParkJob: node.park_job,
        ResumeJob: node.resume_job,
        MoveJob: node.move_job,
        SetShares: node.set_shares,
        KillJob: node.kill_job,
        ProfileJob: node.profile_job,
        ApplySetting: node.apply_setting,
        MeasureSetting: node.measure_setting,
        AwaitRequests: node.await_requests,
    }


class CoreDriver:
    """Passes events to a core, and its commands to what carries them out.

    Attributes:
        core: The core, which makes all decisions.
    """

    def __init__(
        self,
        core: Scheduler,
        node: NodeCommands,
        run: RunCommands,
        noted: Callable[[Event, list[Command]], None] | None = None,
    ) -> None:
        """Drive a core.

        Args:
            core: A core without a run yet; the first event must be `RunOpened`.
            node: Carries out the commands about lanes, processes and devices.
            run: Carries out the others.
            noted: Gets each event with its commands before the first of them is carried out, such as a log.
        """
        self.core, self._noted = core, noted
        self._methods: dict[type, Callable[..., None]] = {
            **node_methods(node),
            DropJob: run.drop_job,
            AskSetting: run.ask_setting,
            AskInterference: run.ask_interference,
            AskPower: run.ask_power,
            AskPlanner: run.ask_planner,
            AskSampler: run.ask_sampler,
            WakeAt: run.wake_at,
        }

    def tell(self, event: Event) -> list[Command]:
        """Handle an event and carry out what follows; return the commands."""
        commands = self.core.handle(event)
        if self._noted is not None:
            self._noted(event, commands)
        self.carry_out(event, commands)
        return commands

    def carry_out(self, event: Event, commands: list[Command]) -> None:
        """Carry out the commands that follow from an event, for a driver that handles and notes events itself."""
        for command in commands:
            self._methods[type(command)](command, event.at_s)
