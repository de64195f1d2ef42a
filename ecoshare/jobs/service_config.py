"""Schema of the key `service:`: a job that answers requests within a target time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Final, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from ecoshare.base.service import ARRIVALS, QUEUE, RequestSource, ServiceSpec
from ecoshare.jobs import fields
from ecoshare.jobs.quantities import parse_duration_s, quoted

RETRIES: Final = 100
"""How many times a failed service is started again, unless the job file says otherwise."""

_MOST_WAITING: Final = 1_000_000
_FASTEST: Final = 1e6
"""Largest factor of `speed` and most requests a second."""

_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
"""Hosts of servers on this machine, as a URL names them."""

_TOGETHER: Final = ("sleep", "wake", "port")
"""Keys of a server with a scheduler of its own. A service has all of them or none."""

Place = tuple[int | str, ...]


def _mistaken(title: str, problems: Sequence[tuple[Place, str]]) -> ValidationError:
    """Error with the place of each problem below the value that is validated. It is raised inside a validator."""
    return ValidationError.from_exception_data(
        title,
        [
            {"type": "value_error", "loc": place, "input": None, "ctx": {"error": ValueError(what)}}
            for place, what in problems
        ],
    )


def _read_target(value: object) -> object:
    # A bare number would be seconds, and a reader of `p99: 50` may mean milliseconds.
    if not isinstance(value, str) or not value.strip()[-1:].isalpha():
        raise ValueError(f"expected a duration with its unit, such as '50 ms', got {quoted(value)}")
    return parse_duration_s(value)


def _read_batch(value: object) -> object:
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"expected a list of batch sizes such as [1, 2, 4, 8], got {quoted(value)}")
    return value


def _check_batch(sizes: tuple[int, ...]) -> tuple[int, ...]:
    problems = [
        ((place,), f"{size} follows {before}: batch sizes ascend, each once")
        for place, (before, size) in enumerate(pairwise(sizes), start=1)
        if size <= before
    ]
    if problems:
        raise _mistaken("batch", problems)
    return sizes


def _read_url(value: object) -> object:
    text = value if isinstance(value, str) else ""
    try:
        url = urlsplit(text)
        is_good = url.scheme == "http" and url.hostname in _LOOPBACK and url.port != 0
    except ValueError:  # a port above 65535, or half of a bracket
        is_good = False
    # `urlsplit` drops some control characters, and leaves others that no request line may have.
    is_sendable = text.isascii() and text.isprintable() and not {" ", "#"} & set(text)
    if not is_good or not is_sendable or "@" in url.netloc:
        hosts = ", ".join(_LOOPBACK)
        raise ValueError(f"expected a URL such as http://127.0.0.1:8000/sleep (host: {hosts}), got {quoted(value)}")
    return text


def _origin(url: SplitResult) -> tuple[str | None, int]:
    return url.hostname, url.port or 80


def _read_task(value: object) -> object:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected the id of a task in the trace, got {quoted(value)}")
    return value


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


Target = Annotated[float, Field(gt=0), BeforeValidator(_read_target), WithJsonSchema({"type": "string"})]
BatchSizes = Annotated[
    tuple[fields.PositiveInteger, ...],
    BeforeValidator(_read_batch),
    AfterValidator(_check_batch),
    WithJsonSchema(
        {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"type": "integer", "minimum": 1}},
    ),
]
PositiveNumber = Annotated[float, Field(gt=0, le=_FASTEST), BeforeValidator(fields.read_number)]
TaskId = Annotated[str, BeforeValidator(_read_task)]
LoopbackUrl = Annotated[str, BeforeValidator(_read_url), WithJsonSchema({"type": "string", "format": "uri"})]


class RequestConfig(_Model):
    """Requests that ecoshare makes itself: at the times of a trace, by a Poisson process, or in a closed loop."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["trace"]}, {"required": ["rate"]}, {"required": ["clients"]}]}
    )

    trace: fields.FilePath | None = Field(
        default=None,
        description=(
            "File with the times of arrivals, relative to the job file: CSV with a column `arrival_s`, a JSON list of "
            "gaps in seconds, or a workload of DISB."
        ),
    )
    task: TaskId | None = Field(default=None, description="Task of a DISB workload; needed if it has several.")
    speed: PositiveNumber = Field(
        default=1.0, description="Factor by which the requests of a trace come faster: its times are divided by it."
    )
    rate_per_s: PositiveNumber | None = Field(
        default=None, alias="rate", description="Mean number of requests a second of a Poisson process."
    )
    seed: fields.AnyInteger = Field(default=0, description="Seed of the Poisson process.")
    clients: Annotated[fields.PositiveInteger, Field(le=_MOST_WAITING)] | None = Field(
        default=None,
        description="Number of clients in a closed loop: each sends its next request when it has its answer.",
    )
    count: fields.PositiveInteger | None = Field(
        default=None,
        description=("Number of requests in all; by default all of a trace, and without end for `rate` and `clients`."),
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = {"trace": self.trace, "rate": self.rate_per_s, "clients": self.clients}
        ways = [key for key, value in given.items() if value is not None]
        if len(ways) != 1:
            more = f", not {' and '.join(ways)}" if ways else ""
            raise ValueError(f"requests have one of 'trace', 'rate' and 'clients'{more}")
        needs = {"task": "trace", "speed": "trace", "seed": "rate"}
        wrong: list[tuple[Place, str]] = [
            ((key,), f"{key!r} belongs to {way!r}, and these requests have {ways[0]!r}")
            for key, way in needs.items()
            if key in self.model_fields_set and ways != [way]
        ]
        if wrong:
            raise _mistaken("requests", wrong)
        return self

    @property
    def source(self) -> RequestSource:
        """Source of the requests. Arrivals of a trace are in the file `ARRIVALS` of the job's folder."""
        if self.trace is not None:
            return RequestSource(arrivals=ARRIVALS)
        return RequestSource(
            rate_per_s=self.rate_per_s or 0.0, clients=self.clients or 0, count=self.count or 0, seed=self.seed
        )


class ServiceConfig(_Model):
    """A job that answers requests, 99 of 100 within a target time."""

    model_config = ConfigDict(
        json_schema_extra={"dependentRequired": {key: [each for each in _TOGETHER if each != key] for key in _TOGETHER}}
    )

    p99_s: Target = Field(
        alias="p99",
        description=(
            "Target: 99 of 100 requests are answered within this time from their arrival, such as `50 ms`. It needs a "
            "unit."
        ),
    )
    batch: BatchSizes = Field(
        default=(),
        description="Batch sizes that may be used, in ascending order; by default those that the program names.",
    )
    queue: Annotated[fields.PositiveInteger, Field(le=_MOST_WAITING)] | None = Field(
        default=None,
        description=(
            "Most requests that wait at once; further ones are refused. The default is "
            f"{QUEUE}, or the largest batch if that is more."
        ),
    )
    requests: RequestConfig | None = Field(
        default=None, description="Requests that ecoshare makes itself; by default they come from outside."
    )
    sleep: LoopbackUrl | None = Field(
        default=None,
        description=(
            "URL on this machine that puts a server with a scheduler of its own to sleep, such as "
            "`http://127.0.0.1:8000/sleep`. ecoshare sends it a POST while no request is due."
        ),
    )
    wake: LoopbackUrl | None = Field(
        default=None, description="URL of the same server that wakes it. It is needed with `sleep`."
    )
    port: Annotated[fields.PositiveInteger, Field(le=65535)] | None = Field(
        default=None,
        description=(
            "Port of 127.0.0.1 at which ecoshare listens for the clients of a server with `sleep`, and passes their "
            "requests on."
        ),
    )

    @model_validator(mode="after")
    def _check_sleep(self) -> Self:
        given = [key for key in _TOGETHER if getattr(self, key) is not None]
        if not given:
            return self
        if missing := [key for key in _TOGETHER if key not in given]:
            keys = " and ".join(map(repr, missing))
            is_missing = f"the key {keys} is missing" if len(missing) == 1 else f"the keys {keys} are missing"
            raise ValueError(f"{is_missing}: a server that sleeps has 'sleep', 'wake' and 'port'")
        problems: list[tuple[Place, str]] = [
            ((key,), f"a server that sleeps has a scheduler of its own, and so no {key!r} here")
            for key in ("batch", "queue", "requests")
            if getattr(self, key)
        ]
        sleep, wake = (_origin(urlsplit(url or "")) for url in (self.sleep, self.wake))
        if sleep != wake:
            problems.append((("wake",), "expected the host and the port of 'sleep': one server has both URLs"))
        if self.port in (sleep[1], wake[1]):
            problems.append((("port",), f"{self.port} is the port of the server: clients ask at another one"))
        if problems:
            raise _mistaken("service", problems)
        return self

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.queue is not None and self.batch and self.queue < self.batch[-1]:
            raise _mistaken(
                "service", [(("queue",), f"{self.queue} requests do not fill the largest batch, {self.batch[-1]}")]
            )
        return self

    @property
    def spec(self) -> ServiceSpec:
        """Service as a value, without the times of a trace."""
        return ServiceSpec(
            p99_s=self.p99_s,
            batch_sizes=self.batch,
            queue=self.queue if self.queue is not None else max(QUEUE, *self.batch, 1),
            requests=self.requests.source if self.requests is not None else None,
            sleep=self.sleep or "",
            wake=self.wake or "",
            port=self.port or 0,
        )
