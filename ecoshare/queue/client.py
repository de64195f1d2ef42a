"""Connection to a queue of the same user on this machine, and what its folder tells while it is down."""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx
from pydantic import BaseModel, ValidationError

from ecoshare.base.plural import counted
from ecoshare.errors import EcoshareError, QueueDown, UnfitEnvironment
from ecoshare.queue.job_store import JobRow, JobStore
from ecoshare.queue.queue_documents import Problem
from ecoshare.queue.queue_folder import QueueFolder, own_folder, socket_address

_CONNECT_S, _ANSWER_S = 5.0, 60.0
_LOOK_S = 0.1

_KILLED_S = 2.0
"""Longest time (s) from the end of the connections of a process that was killed to the end of its lock."""


class QueueConnection:
    """Connection to a queue; a context manager. Each method raises `EcoshareError` if the queue refuses the request.

    Attributes:
        folder: Folder of the queue.
    """

    def __init__(self, name: str, reach_s: float = _CONNECT_S) -> None:
        """Connection to the queue with this name, which need not be up before the first call.

        Args:
            name: Name of the queue.
            reach_s: Longest time (s) to wait for a queue that is up and takes no connections: it begins, or goes down.

        Raises:
            UsageError: The text cannot be the name of a queue.
        """
        self.folder, self._reach_s = QueueFolder.of(name), reach_s
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
        transport = httpx.HTTPTransport(uds=address, verify=False)  # no TLS here: certificates take 0.1 s to load
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
        until_s = time.monotonic() + self._reach_s
        while self.folder.is_up():
            if _takes_connections(address):
                return
            if time.monotonic() > until_s:
                words = f"the queue {self.folder.name!r} takes no connections: it is starting or going down"
                raise UnfitEnvironment(words, "try again in a moment")
            time.sleep(_LOOK_S)
        raise self._not_up()

    def _not_up(self) -> UnfitEnvironment:
        option = self.folder.option
        if count := len(left_in(self.folder)):
            waits = "waits" if count == 1 else "wait"
            words = f"{counted(count, 'job')} {waits} for `ecoshare up --resume{option}`"
            return QueueDown(f"the queue {self.folder.name!r} is not up: {words}")
        return UnfitEnvironment(f"the queue {self.folder.name!r} is not up", f"`ecoshare up --detach{option}` opens it")

    @contextlib.contextmanager
    def _user_errors(self) -> Iterator[httpx.Client]:
        assert self._http is not None, "the connection is a context manager"
        try:
            yield self._http
        except (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError) as error:
            if self._is_served():
                raise UnfitEnvironment(f"the queue {self.folder.name!r} does not answer: {error}") from error
            raise QueueDown(
                f"the queue {self.folder.name!r} has gone down",
                f"`ecoshare up --resume{self.folder.option}` goes on with its jobs",
            ) from error
        except httpx.TimeoutException as error:
            raise UnfitEnvironment(f"the queue {self.folder.name!r} does not answer") from error

    def _is_served(self) -> bool:
        """Whether the queue stays up after a connection was lost.

        A process that was killed keeps its lock for a moment, in which the kernel may even take a connection for it. A
        process that goes down has no socket any more.
        """
        until_s = time.monotonic() + _KILLED_S
        while self.folder.is_up() and self.folder.socket.exists():
            if time.monotonic() > until_s:
                return True
            time.sleep(_LOOK_S)
        return False

    def ask(self, method: str, path: str, body: BaseModel | Mapping[str, Any] | None = None, **params: Any) -> Any:
        """Content of the answer to a request; None for an empty one."""
        content = body.model_dump(mode="json", exclude_none=True) if isinstance(body, BaseModel) else body
        with self._user_errors() as http:
            answer = http.request(method, path, json=content, params=params)
        if answer.is_error:
            raise _error(answer)
        return answer.json() if answer.content else None

    def stream(self, path: str, is_long: bool, **params: str | int | bool) -> Iterator[bytes]:
        """Bytes of an answer as they come.

        Args:
            path: Path of the request.
            is_long: Whether the answer may pause for any time.
            params: Parameters of the request.
        """
        times = httpx.Timeout(None if is_long else _ANSWER_S, connect=_CONNECT_S)
        with self._user_errors() as http, http.stream("GET", path, params=params, timeout=times) as answer:
            if answer.is_error:
                answer.read()
                raise _error(answer)
            yield from answer.iter_bytes()

    def wait_for_end(self) -> None:
        """Wait until the queue is down."""
        while self.folder.is_up():
            time.sleep(_LOOK_S)


def _takes_connections(address: str) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_S)
        probe.connect(address)
        return True
    return False


def left_in(folder: QueueFolder) -> list[JobRow]:
    """Jobs and sweeps of a queue that have not ended, as its folder has them; empty if there is no such queue."""
    if not folder.database.exists():
        return []
    with own_folder(folder.path), contextlib.closing(JobStore(folder.database)) as store:
        return store.left()


def found_in(folder: QueueFolder, name: str) -> JobRow | None:
    """Job or sweep of a queue as its folder has it; None if there is none."""
    if not folder.database.exists() or not name.isprintable():  # bytes of a path that are no text
        return None
    with own_folder(folder.path), contextlib.closing(JobStore(folder.database)) as store:
        return store.find(name)


def _error(answer: httpx.Response) -> EcoshareError:
    try:
        return Problem.model_validate_json(answer.content).error()
    except ValidationError:
        return EcoshareError(f"the queue failed: {answer.status_code} {answer.reason_phrase}")


def new_id() -> str:
    """Id of a new submission."""
    return secrets.token_hex(16)
