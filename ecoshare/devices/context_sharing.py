"""Decision about how the processes of a run share a device: one context through a service, or time slices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ContextSharing:
    """How the jobs of parallel lanes use a device at the same moment.

    Attributes:
        evidence: The decision and its reason, for the record of the run.
        is_shared: Whether all jobs share one context. Then the unclean death of one job may corrupt its neighbours.
        environment: Variables that make the jobs clients of the service; empty without one.
        behind: Variables that let the work of a job wait for that of others on the device, as far as the service can.
        end: Ends a service that was started for this run. All jobs must have ended.
    """

    evidence: str
    is_shared: bool = False
    environment: dict[str, str | None] = field(default_factory=dict)
    behind: dict[str, str | None] = field(default_factory=dict)
    end: Callable[[], None] = lambda: None
