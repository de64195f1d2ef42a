"""Ports on the loopback address at which the ranks of attempts meet. No port is given out twice in a run."""

from __future__ import annotations

import socket


class LoopbackPorts:
    """Ports of a run.

    Each port stays bound, without listening, until the run ends. So no other program that asks for any free port gets
    it, and the store of rank 0 can listen there: both sides set `SO_REUSEADDR`.
    """

    def __init__(self) -> None:
        """No port yet."""
        self._bound: list[socket.socket] = []

    def take(self) -> int:
        """A free port.

        Raises:
            OSError: The machine has none left.
        """
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        self._bound.append(bound)
        return int(bound.getsockname()[1])

    def close(self) -> None:
        """Give all ports back."""
        for bound in self._bound:
            bound.close()
