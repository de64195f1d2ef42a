"""Service: a job that answers requests, each within a time from its arrival."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from typing import Any, NoReturn, Protocol

QUEUE = 256
"""Most requests that wait at once, unless the job says otherwise."""

CALL_LIMIT_S = 60.0
"""Longest time (s) for which a job may wait for its turn behind one call of a service that has no `timeout`."""

ARRIVALS = "arrivals.txt"
"""Name of the file with the times of arrivals in the job's folder."""

REQUESTS = "requests.jsonl"
"""Name of the record of the requests of an attempt in the job's folder."""

BATCHES = "batches.jsonl"
"""Name of the file with the times of an attempt's answers by batch size in the job's folder."""

Answering = Callable[[float, float], AbstractContextManager[Callable[[float, float], None]]]
"""Context around a call of a service's handler: the service has its turn inside.

The arguments are the time (s) on the monotonic clock at which the first answer is due, infinity for none, and the time
(s) that the call takes at most. The context gives a function with the same arguments, which tells of the next call if
requests wait for one.
"""


class ServiceThread(Protocol):
    """The only thread of a service that shares its process with other jobs. The program runs with the turn alone."""

    @property
    def goes_on(self) -> bool:
        """Whether the service was not asked to end."""
        ...

    def serving(self) -> AbstractContextManager[None]:
        """Context of the loop that serves: a request to end does not unwind the program, and its end has the turn."""
        ...

    def rest(self, until_s: float) -> None:
        """Sleep without the turn until a time (s) on the monotonic clock, or until the service is asked to end."""
        ...

    def move_out(self, what: str) -> NoReturn:
        """Begin the service again in a process of its own, because of what it does: `answers over HTTP`."""
        ...


@dataclass(frozen=True, slots=True)
class AnswerMeasurement:
    """Measurement of a service's answers by its own process, which a run of `ecoshare profile` asks for.

    Attributes:
        path: Path of the file that gets the times, by batch size.
        opened_s: Time (s) on the monotonic clock at which the run was opened. Times in the file count from it.
        holding: Context around the measurement. The function that it gives ends an inference iteration; nothing else
            inside does.
        drain: Waits until the device has finished the work of this process.
    """

    path: str
    opened_s: float
    holding: Callable[[], AbstractContextManager[Callable[[], None]]]
    drain: Callable[[], None]


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
        sleep: URL that puts a server with a scheduler of its own to sleep; empty for any other service.
        wake: URL that wakes such a server, of the same origin.
        port: Port at which ecoshare listens for the clients of such a server.
    """

    p99_s: float
    batch_sizes: tuple[int, ...] = ()
    queue: int = QUEUE
    requests: RequestSource | None = None
    sleep: str = ""
    wake: str = ""
    port: int = 0

    @property
    def is_open_ended(self) -> bool:
        """Whether there is no last request: the service ends when all other jobs of its run have ended."""
        return self.requests is None or not self.requests.ends


def service_as_dict(service: ServiceSpec) -> dict[str, Any]:
    """Fields of a service as plain data for JSON; `service_of` makes the service again."""
    return {**asdict(service), "batch_sizes": list(service.batch_sizes)}


def service_of(given: Mapping[str, Any]) -> ServiceSpec:
    """Service of the fields that `service_as_dict` has made. Fields that a newer version has added are ignored.

    Raises:
        TypeError: The target is missing.
    """
    own = {each.name: given[each.name] for each in fields(ServiceSpec) if each.name in given}
    own["batch_sizes"] = tuple(own.get("batch_sizes", ()))
    if (requests := own.get("requests")) is not None:
        known = {each.name for each in fields(RequestSource)}
        own["requests"] = RequestSource(**{name: value for name, value in requests.items() if name in known})
    return ServiceSpec(**own)
