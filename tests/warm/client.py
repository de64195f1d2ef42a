"""Requests to a zygote for a process."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Mapping, Sequence
from typing import Any


class ZygoteChild:
    """Process that a zygote has forked."""

    def __init__(self, zygote: str, request: Mapping[str, Any], files: Sequence[int]) -> None:
        """Let the zygote that listens at this path fork the process; see `tests.warm.zygote`.

        Raises:
            OSError: The zygote is gone.
        """
        self._code: int | None = None
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(zygote)
        message = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(self._connection, [message], list(files))
        self._connection.sendall(message[sent:])
        told, (self._handle,), _, _ = socket.recv_fds(self._connection, 64, 1)
        self.pid: int = json.loads(told)

    def send_signal(self, number: int) -> None:
        """Send a signal; it has no effect after the end of the process."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Exit code, negative for a signal; None if the process still runs after the time limit."""
        if self._code is None and self._has_said(timeout_s):
            said = self._connection.recv(64)
            if not said:
                raise ConnectionError("the zygote has died")
            self._code = json.loads(said)
            self._connection.close()
            os.close(self._handle)
        return self._code

    def _has_said(self, timeout_s: float | None) -> bool:
        ready = select.poll()  # `select` takes no descriptor above 1,023
        ready.register(self._connection, select.POLLIN)
        return bool(ready.poll(None if timeout_s is None else 1e3 * timeout_s))

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):  # it was not even begun
            self._connection.close()
            if self._code is None:
                os.close(self._handle)
