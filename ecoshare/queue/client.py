"""Connection to a queue of the same user on this machine."""

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

from ecoshare.errors import EcoshareError, UnfitEnvironment
from ecoshare.queue.queue_documents import Problem
from ecoshare.queue.queue_folder import QueueFolder, socket_address

_CONNECT_S, _ANSWER_S = 5.0, 60.0
_LOOK_S = 0.1


class QueueConnection:
    """Connection to a queue; a context manager. Each method raises `EcoshareError` if the queue refuses the request.

    Attributes:
        folder: Folder of the queue.
    """

    def __init__(self, name: str) -> None:
        """Connection to the queue with this name, which need not be up before the first call.

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
    def _user_errors(self) -> Iterator[httpx.Client]:
        assert self._http is not None, "the connection is a context manager"
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


def _error(answer: httpx.Response) -> EcoshareError:
    try:
        return Problem.model_validate_json(answer.content).error()
    except ValidationError:
        return EcoshareError(f"the queue failed: {answer.status_code} {answer.reason_phrase}")


def new_id() -> str:
    """Id of a new submission."""
    return secrets.token_hex(16)
