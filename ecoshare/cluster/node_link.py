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
        give_back: Gives the machine back to its engine, after the agent has ended; None if the run must keep it.
    """

    name: str
    address: str
    start: Callable[[], NodeLink]
    give_back: Callable[[], None] | None = None


class LookForNodes(Protocol):
    """Machines that come and go while a run goes on. The calls may take a while, and are made in a thread."""

    def present(self) -> Sequence[NodeStart]:
        """Machines that are there now, those of the run included. One that was given back has another name then."""
        ...

    def ask(self, nodes: int) -> None:
        """Ask the engine for so many machines in all, if it can start some; 0 if the run needs no more."""
        ...
