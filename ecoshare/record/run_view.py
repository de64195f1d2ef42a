"""What a run looks like at one moment, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ecoshare.core.commands import Command
from ecoshare.core.events import Event


@dataclass(frozen=True, slots=True)
class JobView:
    """One job at one moment.

    Attributes:
        state: Value of a `core.states.JobState`, or `arriving`.
        holding: Whether it has its lane's turn.
        total: Iterations in all, where the owner said.
        rate: Iterations a second of wall time, waits included; None before two are done.
        reason: Why it ended, where that needs saying.
    """

    name: str
    state: str
    lanes: tuple[int, ...]
    holding: bool
    iterations: int
    eval_iterations: int
    total: int | None
    rate: float | None
    slowdown: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SweepView:
    """A sweep at one moment.

    Attributes:
        trials: In all.
        ended: How many trials have ended, by state.
        best: The trial that does best of those that are through, and its value; None before there is one.
    """

    name: str
    trials: int
    ended: dict[str, int]
    best: tuple[str, float] | None


@dataclass(frozen=True, slots=True)
class RunView:
    """A run at one moment.

    Attributes:
        jobs: Of the trials of sweeps those that have arrived and not ended.
        warm: torch is loaded.
    """

    at_s: float
    jobs: tuple[JobView, ...]
    stopping: bool
    warm: bool
    sweeps: tuple[SweepView, ...] = ()


class ProgressDisplay(Protocol):
    """Is told what happens, and shows it."""

    def event(self, event: Event, commands: list[Command]) -> None:
        """Something was decided."""
        ...

    def show(self, view: RunView) -> None:
        """The run as it is now; called a few times a second."""
        ...

    def close(self) -> None:
        """No more is to come."""
        ...
