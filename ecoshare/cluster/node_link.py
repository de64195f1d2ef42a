"""Carries lines between a run and the agent of a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class NodeLink(Protocol):
    """A way to an agent. Its calls return at once, and may be made in any thread."""

    def listen(self, heard: Callable[[bytes], None], lost: Callable[[str], None]) -> None:
        """Begin to pass on the lines of the agent, in a thread.

        Args:
            heard: Gets each line.
            lost: Gets the reason, one line, when no more lines come; called once.
        """
        ...

    def send(self, line: bytes) -> None:
        """Send a line. It is lost if the agent has gone."""
        ...

    def close(self) -> None:
        """End the agent, if it has not ended."""
        ...
