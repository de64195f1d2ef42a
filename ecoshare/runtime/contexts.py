"""GPU sharing between the processes of a run: one context through MPS, or time slices of the driver."""

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
    """Decision about the contexts of the jobs of a run.

    Attributes:
        daemon: MPS daemon that serves the jobs; None without MPS.
        evidence: The decision and its reason, for the record of the run.
    """

    daemon: mps.Daemon | None
    evidence: str

    @property
    def environment(self) -> dict[str, str | None]:
        """Environment variables that make the jobs clients of the daemon; empty without MPS."""
        return self.daemon.environment if self.daemon is not None else {}

    def end(self) -> None:
        """End the MPS daemon if it was started for this run. All jobs must have ended."""
        if self.daemon is not None:
            mps.end(self.daemon)


def context_sharing(plan: Plan, shared: Path, token: str) -> ContextSharing:
    """Choose MPS if several processes run on the GPU at once and MPS is available.

    A daemon that already runs is always used. Otherwise, one lane needs no MPS: its jobs never run at once. Each job
    has its own context, so a crash stays with its job.

    Args:
        shared: Folder of the run for sockets.
        token: Token that marks the processes of the run.

    Raises:
        UnfitEnvironment: The GPU is in compute mode exclusive_process, and MPS is not available.
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
