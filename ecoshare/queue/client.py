"""Client of a queue of the same user on this machine."""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httpx
from pydantic import BaseModel, ValidationError

from ecoshare.errors import EcoshareError, UnfitEnvironment
from ecoshare.queue.queue_documents import Acknowledged, JobStatus, Problem, QueueStatus, Submission
from ecoshare.queue.queue_folder import QueueFolder, socket_address

_CONNECT_S, _ANSWER_S = 5.0, 60.0
_LONG_POLL_S = 20.0
_LOOK_S = 0.1


class QueueClient:
    """Connection to a queue; a context manager. Each method raises `EcoshareError` if the queue refuses the request.

    Attributes:
        folder: Folder of the queue.
    """

    def __init__(self, name: str) -> None:
        """Client of the queue with this name, which need not be up before the first call.

        Raises:
            UsageError: The text cannot be the name of a queue.
        """
        self.folder = QueueFolder.of(name)
        self._open = contextlib.ExitStack()
        self._http: httpx.Client | None = None

    def __enter__(self) -> Self:
        """Connect.

        Raises:
            UnfitEnvironment: The queue is not up.
        """
        try:
            address = self._open.enter_context(socket_address(self.folder.socket))
        except OSError as error:
            raise self._not_up() from error
        self._reach(address)
        times = httpx.Timeout(_ANSWER_S, connect=_CONNECT_S)
        transport = httpx.HTTPTransport(uds=address)
        self._http = self._open.enter_context(
            httpx.Client(transport=transport, base_url="http://queue", timeout=times, trust_env=False)
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        self._open.close()

    def _reach(self, address: str) -> None:
        """Wait until the queue takes connections, which a queue that opens does not do at once.

        Raises:
            UnfitEnvironment: The queue is not up, or takes none.
        """
        until_s = time.monotonic() + _CONNECT_S
        while self.folder.is_up():
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.settimeout(_CONNECT_S)
                probe.connect(address)
                return
            if time.monotonic() > until_s:
                raise UnfitEnvironment(f"the queue {self.folder.name!r} does not answer")
            time.sleep(_LOOK_S)
        raise self._not_up()

    def _not_up(self) -> UnfitEnvironment:
        option = self.folder.option
        return UnfitEnvironment(f"the queue {self.folder.name!r} is not up", f"`ecoshare up --detach{option}` opens it")

    @contextlib.contextmanager
    def _told(self) -> Iterator[httpx.Client]:
        assert self._http is not None, "the client is a context manager"
        try:
            yield self._http
        except (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError) as error:
            if self.folder.is_up():
                raise UnfitEnvironment(f"the queue {self.folder.name!r} does not answer: {error}") from error
            raise UnfitEnvironment(
                f"the queue {self.folder.name!r} has gone down",
                f"`ecoshare up --resume{self.folder.option}` goes on with its jobs",
            ) from error
        except httpx.TimeoutException as error:
            raise UnfitEnvironment(f"the queue {self.folder.name!r} does not answer") from error

    def _ask(self, method: str, path: str, body: BaseModel | Mapping[str, Any] | None = None, **params: Any) -> Any:
        content = body.model_dump(mode="json", exclude_none=True) if isinstance(body, BaseModel) else body
        with self._told() as http:
            answer = http.request(method, path, json=content, params=params)
        if answer.is_error:
            raise _error(answer)
        return answer.json() if answer.content else None

    def submit(self, submission: Submission) -> Acknowledged:
        """Submit jobs; the names that they were given."""
        return Acknowledged.model_validate(self._ask("POST", "/api/v1/jobs", submission))

    def status(self, ended: int = 20) -> QueueStatus:
        """The queue, with all jobs that have not ended, and so many that ended last."""
        return QueueStatus.model_validate(self._ask("GET", "/api/v1/jobs", ended=ended))

    def job(self, name: str) -> JobStatus:
        """One job or sweep."""
        return JobStatus.model_validate(self._ask("GET", f"/api/v1/jobs/{name}"))

    def wait(self, name: str) -> JobStatus:
        """One job or sweep, after its end."""
        while True:
            status = JobStatus.model_validate(self._ask("GET", f"/api/v1/jobs/{name}", wait_s=_LONG_POLL_S))
            if status.ended_unix_s is not None:
                return status

    def cancel(self, names: Sequence[str], at_once: bool = False) -> None:
        """Cancel jobs and sweeps."""
        self._ask("POST", "/api/v1/cancel", {"jobs": list(names), "at_once": at_once})

    def hold(self, name: str) -> JobStatus:
        """Keep a job that waits from starting."""
        return JobStatus.model_validate(self._ask("PATCH", f"/api/v1/jobs/{name}", {"held": True}))

    def release(self, name: str) -> JobStatus:
        """Let a held job start again."""
        return JobStatus.model_validate(self._ask("PATCH", f"/api/v1/jobs/{name}", {"held": False}))

    def prioritise(self, name: str, priority: int) -> JobStatus:
        """Give a job another priority."""
        return JobStatus.model_validate(self._ask("PATCH", f"/api/v1/jobs/{name}", {"priority": priority}))

    def output(
        self, name: str, stream: str = "stdout", follow: bool = False, lines: int | None = None
    ) -> Iterator[bytes]:
        """Output of a job as it was written; with `follow`, until its end."""
        params: dict[str, str | int | bool] = {"stream": stream, "follow": follow}
        if lines is not None:
            params["lines"] = lines
        times = httpx.Timeout(None if follow else _ANSWER_S, connect=_CONNECT_S)
        with (
            self._told() as http,
            http.stream("GET", f"/api/v1/jobs/{name}/output", params=params, timeout=times) as answer,
        ):
            if answer.is_error:
                answer.read()
                raise _error(answer)
            yield from answer.iter_bytes()

    def end(self, how: str) -> None:
        """Bring the queue to its end, and return when it is down."""
        self._ask("POST", "/api/v1/end", {"how": how})
        while self.folder.is_up():
            time.sleep(_LOOK_S)


def _error(answer: httpx.Response) -> EcoshareError:
    try:
        return Problem.model_validate_json(answer.content).error()
    except ValidationError:
        return EcoshareError(f"the queue failed: {answer.status_code} {answer.reason_phrase}")


def new_id() -> str:
    """Id of a new submission."""
    return secrets.token_hex(16)
