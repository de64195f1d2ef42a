"""Carries lines between a run and the agent of a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class NodeStart:
    """A machine on which the agent of a run can be started.

    Attributes:
        name: Name of the node in the run.
        address: Address of the machine for the other ones.
        start: Starts the agent.
    """

    name: str
    address: str
    start: Callable[[], NodeLink]


LookForNodes = Callable[[], Sequence[NodeStart]]
"""Returns the machines that are there now, those of the run included. Each has one name for good.

It may take a while, and is called in a thread.
"""
