"""Types and checks that the requests share."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, dataclass_transform

from ecoshare.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from ecoshare.base.measurement import Goal
    from ecoshare.jobs.from_values import AnyPath
    from ecoshare.knowledge.profile_store import ProfileStore
    from ecoshare.record.run_view import ProgressDisplay

Control = Literal["auto", "known", "off"]
"""Whether a run may set clocks and power.

`auto` searches the best setting of each packing and uses it, `known` only uses what was found before, `off` sets
nothing.
"""

CONTROLS: tuple[Control, ...] = ("auto", "known", "off")

_Request = TypeVar("_Request")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def request_class(made: type[_Request]) -> type[_Request]:
    """Decorator: a frozen dataclass of named fields. A wrong name is a `TypeError` that says which was meant."""
    made = dataclass(frozen=True, slots=True, kw_only=True)(made)
    begin, known = made.__init__, [each.name for each in fields(made)]  # type: ignore[arg-type]

    @wraps(begin)
    def checked(self: _Request, /, **given: Any) -> None:
        for name in given:
            if name not in known:
                hint = did_you_mean(name, known)
                raise TypeError(f"{made.__name__} has no field {name!r}" + (f": {hint}" if hint else ""))
        begin(self, **given)

    made.__init__ = checked  # type: ignore[method-assign,assignment]
    return made


def silent(_words: str) -> None:
    """Drop a note."""


def no_progress() -> ProgressDisplay:
    """Display that shows nothing."""
    from ecoshare.reporting.progress import Silent

    return Silent()


def with_fields(request: _Request, fields: dict[str, Any]) -> _Request:
    """Copy of a request with some fields replaced.

    Raises:
        TypeError: The request has no such field.
    """
    return replace(request, **fields) if fields else request  # type: ignore[type-var]


def check_control(name: str) -> None:
    """Check a value of `control`.

    Raises:
        UsageError: It is none.
    """
    if name not in CONTROLS:
        raise UsageError(
            f"--control {name}: expected {', '.join(CONTROLS[:-1])} or {CONTROLS[-1]}", did_you_mean(name, CONTROLS)
        )


def check_least(name: str, value: float | None, least: float, most: float = math.inf) -> None:
    """Check that a number is in its range; None passes.

    Raises:
        UsageError: It is not in the range, or not a number.
    """
    if value is not None and not least <= value <= most:
        up_to = f"{least:g} to {most:g}" if math.isfinite(most) else f"at least {least:g}"
        raise UsageError(f"{name}={value}: expected {up_to}")


def size_bytes(option: str, size: str | int | None) -> int | None:
    """Size in bytes from a number or from text such as `8 GiB`; None for None.

    Args:
        option: Name of the option, for the error.

    Raises:
        UsageError: It is no size.
    """
    from ecoshare.jobs.quantities import parse_size_bytes

    if not isinstance(size, str):
        if size is not None and size < 0:
            raise UsageError(f"{option} {size}: expected a size of at least 0")
        return size
    try:
        return parse_size_bytes(size)
    except ValueError as error:
        raise UsageError(f"{option} {size}: {error}") from error


def power_w(option: str, power: str | float | None) -> float | None:
    """Power in watts from a number or from text such as `1.2 kW`; None for None.

    Args:
        option: Name of the option, for the error.

    Raises:
        UsageError: It is no power, or not above 0.
    """
    from ecoshare.jobs.quantities import parse_power_w

    return _quantity(option, power, parse_power_w)


def duration_s(option: str, duration: str | float | None) -> float | None:
    """Time in seconds from a number or from text such as `10 min`; None for None.

    Args:
        option: Name of the option, for the error.

    Raises:
        UsageError: It is no time, or not above 0.
    """
    from ecoshare.jobs.quantities import parse_duration_s

    found_s = _quantity(option, duration, parse_duration_s)
    if found_s is not None and found_s <= 0.0:
        raise UsageError(f"{option} {duration}: expected a time above 0")
    return found_s


def _quantity(option: str, value: str | float | None, parse: Callable[[str], float]) -> float | None:
    """Quantity of an option from text, or from a number in the unit that `parse` takes for a bare one; None for None.

    Raises:
        UsageError: It is none.
    """
    if value is None:
        return None
    try:
        return parse(value if isinstance(value, str) else f"{float(value):.10g}")
    except ValueError as error:
        raise UsageError(f"{option} {value}: {error}") from error


def path_or_none(path: AnyPath | None) -> Path | None:
    """The path as a `Path`; None for None."""
    return None if path is None else Path(path)


def profile_store(profiles: AnyPath | None) -> ProfileStore:
    """Store of profiles in a folder; None for that of the user's data.

    Raises:
        UnfitEnvironment: The user has no home folder.
    """
    from ecoshare.knowledge.profile_store import ProfileStore
    from ecoshare.knowledge.profiles_folder import default_folder

    return ProfileStore(default_folder() if profiles is None else Path(profiles))


def goal(objective: str, tuning_limit: float, budget: int, seed: int = 0) -> Goal:
    """Goal of a search of settings.

    Args:
        objective: Name of the objective.
        tuning_limit: Upper bound of an iteration's time / its time at the default setting.
        budget: Largest number of measurements.
        seed: Seed of the search.

    Raises:
        UsageError: The limit is not a finite number of at least 1.
    """
    from ecoshare.base.measurement import Goal

    if not (math.isfinite(tuning_limit) and tuning_limit >= 1.0):
        raise UsageError(f"--tuning-limit {tuning_limit:g}: expected a number of at least 1")
    return Goal(objective, tuning_limit, budget, seed)
