"""Parts of a run that exist before its first event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ecoshare.record.event_log import EventLog
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.run_view import ProgressDisplay
from ecoshare.runtime.open_run import JobSource
from ecoshare.runtime.plan import Plan
from ecoshare.runtime.planned_job import PlannedJob
from ecoshare.runtime.profiler import Profiler
from ecoshare.runtime.run_host import RunHost
from ecoshare.runtime.run_node import NodeRun, RunNode
from ecoshare.runtime.run_searches import RunSearches


@dataclass(frozen=True, slots=True)
class RunParts:
    """Parts of a run that exist before its first event.

    Attributes:
        plan: The plan to run.
        jobs: Jobs of the run, by name; trials are added when they are drawn.
        folder: The run folder.
        log: Event log of the run.
        began_s: Monotonic time (s) at which the run was first opened.
        progress: Display that gets every event and the state of the run.
        profiler: Makes profiles from windows, and stores them.
        host: The process that the driver runs in.
        node: Makes the node of the run.
        searches: Searches for settings on the devices.
        know: Adds facts about a machine that has come to `environment.json` and `plan.json`.
        source: Source of more jobs, if the run stays open; otherwise None.
    """

    plan: Plan
    jobs: dict[str, PlannedJob]
    folder: RunFolder
    log: EventLog
    began_s: float
    progress: ProgressDisplay
    profiler: Profiler
    host: RunHost
    node: Callable[[NodeRun], RunNode]
    searches: RunSearches
    know: Callable[[Mapping[str, Any]], None]
    source: JobSource | None = None

    @property
    def only_measures(self) -> bool:
        """Whether the run is for a profile or for a search only."""
        return self.plan.only_tune or self.profiler.stops_the_run
