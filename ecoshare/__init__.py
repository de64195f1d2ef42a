"""ecoshare: several unmodified PyTorch jobs share a device, and spend as few joules on it as they can.

Scripts need not import this. One that wants to say itself where an iteration ends may call `iteration()`.
"""

from __future__ import annotations

from collections.abc import Callable

__version__ = "0.1.0"

_declare: Callable[[], None] | None = None
"""Set by the runner inside a job's process."""

_report: Callable[[dict[str, float]], None] | None = None
"""Set by the runner, too."""

_function: Callable[[str], None] | None = None
"""What jobs call that are no scripts; set by `lane.forked`."""

_bare: frozenset[str] = frozenset()
"""Modules that the interpreter had before ecoshare was loaded; set by `lane.boot`."""


def iteration() -> None:
    """Mark the end of an iteration. Does nothing outside `ecoshare run`.

    Call it where no work is half done, in loops that ecoshare cannot see into: loops without modules, optimizers or a
    `DataLoader`.
    """
    if _declare is not None:
        _declare()


def report(**values: float) -> None:
    """Report values of this trial of a sweep, such as `report(val_loss=0.3)`. Does nothing outside `ecoshare run`.

    Each call is a step. Call it equally often in every trial, for example once an epoch. The sweep's `metric:` names
    the value that counts. A value is anything that `float` accepts, including a tensor of one element.

    Raises:
        TypeError: A value cannot be converted to a number.
        ValueError: A string is not a number.
    """
    numbers = {name: float(value) for name, value in values.items()}
    if _report is not None:
        _report(numbers)
