"""Service: a job that answers requests, each within a time from its arrival."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

QUEUE = 256
"""Most requests that wait at once, unless the job says otherwise."""


@dataclass(frozen=True, slots=True)
class RequestSource:
    """Requests that ecoshare makes itself, without a network.

    All but a closed loop are open: a request comes at its time, whether the answers before it are late or not.

    Attributes:
        arrivals: Path of a file with the times (s) of arrivals after the start of the service, in order, one a line;
            empty if arrivals are drawn.
        rate_per_s: Mean number of requests a second of a Poisson process; 0 if they are not drawn.
        clients: Number of clients in a closed loop: each sends its next request when it has its answer; 0 for none.
        count: Number of requests in all; 0 for as many as there are arrivals, or without end.
        seed: Seed of the Poisson process.
    """

    arrivals: str = ""
    rate_per_s: float = 0.0
    clients: int = 0
    count: int = 0
    seed: int = 0

    @property
    def ends(self) -> bool:
        """Whether there is a last request, after which the service ends by itself."""
        return bool(self.arrivals or self.count)


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """Service.

    Attributes:
        p99_s: Target: 99th percentile of the time (s) from the arrival of a request to its answer.
        batch_sizes: Batch sizes that may be used, in ascending order; empty for those that the program names.
        queue: Most requests that wait at once; further ones are refused.
        requests: Requests that ecoshare makes; None if they come from outside.
    """

    p99_s: float
    batch_sizes: tuple[int, ...] = ()
    queue: int = QUEUE
    requests: RequestSource | None = None


def service_of(fields: Mapping[str, Any]) -> ServiceSpec:
    """Service of the plain data that `dataclasses.asdict` made of one."""
    made = fields["requests"]
    return ServiceSpec(
        p99_s=fields["p99_s"],
        batch_sizes=tuple(fields["batch_sizes"]),
        queue=fields["queue"],
        requests=None if made is None else RequestSource(**made),
    )
