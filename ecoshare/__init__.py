"""ecoshare: several unmodified PyTorch jobs share a device and spend as few joules on it as possible.

Scripts need not import this package. A script that marks the ends of its iterations itself calls `iteration()`.
"""

from __future__ import annotations

from collections.abc import Callable

__version__ = "0.1.0"

_declare: Callable[[], None] | None = None
"""Function behind `iteration`. The runner sets it inside the process of a job."""

_report: Callable[[dict[str, float]], None] | None = None
"""Function behind `report`. The runner sets it, too."""

_function: Callable[[str], None] | None = None
"""Function that a job calls if it is not a script. `lane.forked_server` sets it."""

_bare: frozenset[str] = frozenset()
"""Modules that the interpreter had loaded before ecoshare. `lane.boot` sets it."""


def iteration() -> None:
    """Mark the end of an iteration. The call does nothing outside `ecoshare run`.

    Call it at a point where no work is half done, in loops that ecoshare cannot see: loops without modules, optimizers
    or a `DataLoader`.
    """
    if _declare is not None:
        _declare()


def report(**values: float) -> None:
    """Report values of this trial of a sweep, such as `report(val_loss=0.3)`.

    The call does nothing outside `ecoshare run`. Each call is a step. Call it equally often in every trial, for example
    once an epoch. The sweep's `metric:` names the value that counts. A value is anything that `float` accepts,
    including a tensor of one element.

    Raises:
        TypeError: A value cannot be converted to a number.
        ValueError: A string is not a number.
    """
    numbers = {name: float(value) for name, value in values.items()}
    if _report is not None:
        _report(numbers)
