"""Ports on the loopback address at which the ranks of attempts meet. None is given out twice in a while."""

from __future__ import annotations

import socket
from collections import deque

_MOST_BOUND = 64
"""Most ports that stay bound. A rank 0 that listens at an earlier one has it by itself."""

_MOST_GIVEN = 4096
"""Ports after which earlier ones may be given again: their ranks have met long ago."""


class LoopbackPorts:
    """Ports of a run.

    The latest ports stay bound, without listening. So no other program that asks for any free port gets one before
    rank 0 has opened its store there: both sides set `SO_REUSEADDR`.
    """

    def __init__(self) -> None:
        """No port yet."""
        self._bound: deque[socket.socket] = deque()
        self._given: set[int] = set()

    def take(self) -> int:
        """A free port.

        Raises:
            OSError: The machine has none left.
        """
        while True:
            bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(("127.0.0.1", 0))
            port = int(bound.getsockname()[1])
            self._bound.append(bound)
            if len(self._bound) > _MOST_BOUND:
                self._bound.popleft().close()
            if len(self._given) > _MOST_GIVEN:
                self._given.clear()
            if port not in self._given:
                self._given.add(port)
                return port

    def close(self) -> None:
        """Give all ports back."""
        for bound in self._bound:
            bound.close()
