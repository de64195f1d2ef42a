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
    """Say that an iteration has ended here, where nothing is half done; does nothing outside `ecoshare run`.

    For loops that ecoshare cannot see into: work without modules, optimizers or a `DataLoader`.
    """
    if _declare is not None:
        _declare()


def report(**values: float) -> None:
    """Say how well this trial of a sweep does, such as `report(val_loss=0.3)`; nothing outside `ecoshare run`.

    Each call is a step: call it as often in every trial, once an epoch, say. The sweep's `metric:` names the value that
    counts. Anything that `float` takes will do, a tensor of one element, too.

    Raises:
        TypeError, ValueError: A value is no number.
    """
    numbers = {name: float(value) for name, value in values.items()}
    if _report is not None:
        _report(numbers)
