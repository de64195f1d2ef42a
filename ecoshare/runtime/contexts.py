"""How the processes of a run's jobs share a GPU: one context through MPS, or the driver's time slices."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ecoshare.devices import mps
from ecoshare.errors import UnfitEnvironment
from ecoshare.runtime.plan import Plan
from ecoshare.runtime.reaping import SPARED, TOKEN


@dataclass(frozen=True, slots=True)
class ContextSharing:
    """What was found or started.

    Attributes:
        daemon: The MPS daemon whose clients the jobs will be; None for time slices.
        evidence: What was decided and why, for the run's record.
    """

    daemon: mps.Daemon | None
    evidence: str

    @property
    def environment(self) -> dict[str, str | None]:
        """What the jobs' environment gets."""
        return self.daemon.environment if self.daemon is not None else {}

    def end(self) -> None:
        """End what was started for the run; its jobs are gone."""
        if self.daemon is not None:
            mps.end(self.daemon)


def context_sharing(plan: Plan, shared: Path, token: str) -> ContextSharing:
    """Use MPS where several processes are to run on a GPU at one moment, if it can be had.

    One lane needs none: its jobs never run at the same moment, and each has its context to itself, so a crash stays
    with its job.

    Args:
        shared: Folder of the run for sockets.
        token: Marks the run's processes.

    Raises:
        UnfitEnvironment: The GPU takes one process alone, and MPS cannot be had.
    """
    if plan.device.kind != "cuda":
        return ContextSharing(None, "no GPU")
    exclusive = plan.device.compute_mode == "exclusive_process"
    if (found := mps.running()) is not None:
        return ContextSharing(found, f"MPS daemon found at {found.pipes}")
    if plan.lanes == 1 and not exclusive:
        return ContextSharing(None, "one lane: jobs take turns, each with a context of its own")
    try:
        daemon = mps.start(shared, str(plan.device.uuid), {**os.environ, TOKEN: token, SPARED: "1"})
    except UnfitEnvironment as error:
        if exclusive:
            raise UnfitEnvironment(
                f"{plan.device.name} is in compute mode exclusive_process, and {error}",
                "ecoshare never changes the compute mode; its administrator can",
            ) from error
        return ContextSharing(None, f"lanes alternate by the driver's time slices: {error}")
    return ContextSharing(daemon, "MPS daemon started for this run")
