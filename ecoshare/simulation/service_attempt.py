"""An attempt of a service in virtual time: it wants the turn while requests wait, and its work is one batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ecoshare.core.service_targets import TargetWatch
from ecoshare.simulation.simulated_attempt import SimulatedAttempt
from ecoshare.simulation.simulated_requests import Claim, SimulatedRequests
from ecoshare.values.attempt import Usage


@dataclass(slots=True, eq=False)
class ServiceAttempt(SimulatedAttempt):
    """An attempt of a service. `left_s` is the work (s) that is left of the batch in the handler.

    Attributes:
        requests: Requests of the service.
        claim: Claim on the turn; None while no request waits.
        watch: Watch over the target; None before the first request may come.
        watched: Number of intervals that the watch has seen.
    """

    requests: SimulatedRequests = field(kw_only=True)
    claim: Claim | None = None
    watch: TargetWatch | None = None
    watched: int = 0

    def vary(self) -> None:
        """Do nothing: the time of a batch varies, which `requests` draws."""

    @property
    def wants_turn(self) -> bool:
        """Whether the service has the turn or waits for it."""
        return self.claim is not None

    @property
    def is_service(self) -> bool:
        """True."""
        return True

    @property
    def due_s(self) -> float:
        """Time (s) at which the next answer is due."""
        return math.inf if self.claim is None else self.claim.due_s

    @property
    def needs_s(self) -> float:
        """Time (s) that the next batch takes at most."""
        return 0.0 if self.claim is None else self.claim.needs_s

    @property
    def longest_s(self) -> float:
        """Longest batch (s) of late."""
        return self.requests.longest_s

    def boundary_s(self) -> float:
        """Work (s) until the batch ends."""
        return self.left_s

    def next_boundary_s(self, least_s: float = 0.0) -> float:
        """Work (s) until the batch ends."""
        return self.left_s

    @property
    def phase_left_s(self) -> float:
        """Infinity: a service has no phases."""
        return math.inf

    def usage(self) -> Usage:
        """Usage of this attempt so far: each batch counts as an inference iteration, as live."""
        return Usage(
            eval_iterations=self.requests.batches,
            held_s=self.held_s,
            peak_bytes=self.peak_bytes,
            handovers=self.handovers,
            longest_iteration_s=self.longest_s,
        )
