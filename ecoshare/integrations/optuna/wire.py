"""Messages between a trial's process and the study's process: one JSON value a line, over a Unix socket.

The sockets are abstract sockets of Linux (unix(7)), which are not files, so none is left when a process dies. Every
user of the machine may connect to them, or take their name when they are closed. Each end therefore checks the user of
the other process.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import traceback
from typing import Any

_CREDENTIALS = struct.Struct("3i")
"""struct ucred of Linux: process, user and group."""


def listen(name: str) -> socket.socket:
    """A socket that listens under a name; the name must be one word and hard to guess."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0{name}")
    listener.listen()
    return listener


def accept(listener: socket.socket) -> socket.socket | None:
    """The next connection; None if another user's process connected."""
    return _if_own(listener.accept()[0])


def connect(name: str) -> socket.socket:
    """A connection to the socket that listens under a name.

    Raises:
        ConnectionError: No process of this user listens there.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(f"\0{name}")
    except OSError:
        connection.close()
        raise
    if _if_own(connection) is None:
        raise ConnectionRefusedError(f"{name} is another user's")
    return connection


def _if_own(connection: socket.socket) -> socket.socket | None:
    _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if user in (os.geteuid(), 0):
        return connection
    connection.close()
    return None


class Channel:
    """One end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        """Wrap a connected socket."""
        self.connection = connection
        self._lines = connection.makefile("rb")

    def tell(self, **message: Any) -> None:
        """Send a message.

        Raises:
            TypeError: A value cannot be written as JSON.
            OSError: The other end is gone.
        """
        self.connection.sendall(json.dumps(message, default=_number).encode() + b"\n")

    def hear(self) -> dict[str, Any] | None:
        """The next message; None if the other end is gone. A partial message is dropped."""
        try:
            line = self._lines.readline()
        except ConnectionError:
            return None
        message: dict[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None
        return message

    def close(self) -> None:
        """Close the connection."""
        self._lines.close()
        self.connection.close()


def _number(value: Any) -> Any:
    """Python number for a number of numpy or torch, as a storage would keep it."""
    if callable(item := getattr(value, "item", None)) and not getattr(value, "shape", ()):
        return item()
    raise TypeError(f"{value!r} cannot be told between processes: only None, bool, int, float and str can")


def described(error: BaseException) -> dict[str, str]:
    """An exception as text, for `rebuilt`."""
    return {
        "module": type(error).__module__,
        "name": type(error).__qualname__,
        "said": str(error),
        "trace": "".join(traceback.format_exception(error)),
    }


def rebuilt(description: dict[str, str]) -> BaseException | None:
    """An exception of the same class with the same message; None if this process cannot make one."""
    kind: Any = sys.modules.get(description["module"])
    for name in description["name"].split("."):
        kind = getattr(kind, name, None)
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        return None
    try:
        # Without its own constructor, of which neither arguments nor effects are known.
        error: BaseException = kind.__new__(kind)
        error.args = (description["said"],)
        if str(error) not in (description["said"], repr(description["said"])):  # KeyError shows its argument's repr
            return None
    except Exception:
        return None
    return error


class Elsewhere(Exception):
    """Cause of an error; shows the traceback from another process."""

    def __init__(self, trace: str) -> None:
        super().__init__(trace)

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'
