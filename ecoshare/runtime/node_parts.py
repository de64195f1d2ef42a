"""Parts of a node that exist before its first command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ecoshare.core.commands import MeasureSetting
from ecoshare.devices.context_sharing import ContextSharing
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.device_claim import ClaimedDevice
from ecoshare.runtime.guard_client import Guard
from ecoshare.runtime.node_job import NodeJob
from ecoshare.runtime.profiler import Profiler
from ecoshare.runtime.run_host import RunHost


@dataclass(frozen=True, slots=True)
class NodePlan:
    """Decisions about a run that its nodes need.

    Attributes:
        places: Most jobs that the core lets into a lane.
        parks: Whether jobs may be parked.
        serves: Whether a job of the plan is a service.
        only_tunes: Whether the run is for one search of a setting only.
        starts_many: Whether so many jobs are to be started that a cheap fork is worth its preparation.
    """

    places: int
    parks: bool = False
    serves: bool = False
    only_tunes: bool = False
    starts_many: bool = False


@dataclass(frozen=True, slots=True)
class NodeParts:
    """Parts of a node that exist before its first command.

    Attributes:
        plan: Decisions about the run.
        job: Returns a job that a command starts, by its name.
        context_bytes: Returns the memory (bytes) outside the allocator of a process of a job class.
        most_s: Most time (s) that an iteration of each job of a measurement may take; see `RunSearches.most_s`.
        folder: The run folder.
        shared: Private folder in memory, for lane tables and sockets.
        token: Token that marks the processes of the run.
        began_s: Monotonic time (s) at which the run was first opened.
        devices: The devices of the node, claimed.
        sharing: Decision about the contexts of the jobs.
        profiler: Makes profiles from windows, and stores them.
        guard: Cleans up after this process; kept alive during the run.
        host: The process that provides the server of the lanes.
    """

    plan: NodePlan
    job: Callable[[str], NodeJob]
    context_bytes: Callable[[str], int]
    most_s: Callable[[MeasureSetting], Mapping[str, float] | None]
    folder: RunFolder
    shared: Path
    token: str
    began_s: float
    devices: Sequence[ClaimedDevice]
    sharing: ContextSharing
    profiler: Profiler
    guard: Guard
    host: RunHost

    @property
    def on_processors(self) -> bool:
        """Whether jobs run on the processors; see `DeviceInfo.on_processors`."""
        return self.devices[0].device.on_processors

    @property
    def only_measures(self) -> bool:
        """Whether the run is for a profile or for a search only."""
        return self.plan.only_tunes or self.profiler.stops_the_run
