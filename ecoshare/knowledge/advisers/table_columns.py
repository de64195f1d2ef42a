"""Columns of a measured table, as `--columns` names them: `power_limit=limit:W,time=epoch_s,power=watts`."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum

from ecoshare.errors import UsageError

EXAMPLE = "power_limit=limit:W,work_size=batch,time=epoch_s,power=watts"


class ColumnContent(Enum):
    """Content of a column."""

    CORE_CLOCK = "core_clock"
    MEMORY_CLOCK = "memory_clock"
    POWER_LIMIT = "power_limit"
    WORK_SIZE = "work_size"
    OTHER = "other"
    TIME = "time"
    POWER = "power"


_ALIASES = {"gpu_clock": ColumnContent.CORE_CLOCK, "batch_size": ColumnContent.WORK_SIZE}
_UNITS: dict[ColumnContent, dict[str, float]] = {
    ColumnContent.CORE_CLOCK: {"MHz": 1.0, "GHz": 1000.0},
    ColumnContent.MEMORY_CLOCK: {"MHz": 1.0, "GHz": 1000.0},
    ColumnContent.POWER_LIMIT: {"W": 1.0, "mW": 1e-3},
    ColumnContent.WORK_SIZE: {},
    ColumnContent.OTHER: {},
    ColumnContent.TIME: {"s": 1.0, "ms": 1e-3, "us": 1e-6},
    ColumnContent.POWER: {"W": 1.0, "mW": 1e-3},
}
_RATE = re.compile(
    r"(?<![a-z])(throughputs?|rate|speed|speedup|fps|ips|qps|rps|tps|hz|[kmgt]?flops?)(?![a-z])"
    r"|(/|per[ _-]?)s(ec(ond)?s?)?(?![a-z])"
)
"""Name of a column of rates, in lower case: `it/s`, `samples_per_s`, `gflops`, but not `s/it` or `s_per_step`."""

_TIME = re.compile(r"(?<![a-z])(time|times|seconds|secs|sec|duration|latency|s|ms|us)(?![a-z])")
"""Name of a column that may hold times, in lower case."""

_MANY = (ColumnContent.OTHER, ColumnContent.TIME)
_OBSERVED = (ColumnContent.TIME, ColumnContent.POWER)


@dataclass(frozen=True, slots=True)
class MeasuredColumn:
    """Column that is used.

    Attributes:
        part: Content of the column.
        name: Name in the first line of the table.
        factor: Factor that turns the numbers of the column into MHz, watts or seconds.
    """

    part: ColumnContent
    name: str
    factor: float = 1.0

    @property
    def is_knob(self) -> bool:
        """Whether the column is a part of the setting. Otherwise it was measured at the setting."""
        return self.part not in _OBSERVED

    @property
    def unit(self) -> str:
        """Unit of the numbers after multiplication by the factor; empty if they have none."""
        return next(iter(_UNITS[self.part]), "")


def parse_columns(texts: Iterable[str], header: Sequence[str]) -> list[MeasuredColumn]:
    """Columns that `--columns` names, in its order.

    Args:
        texts: Values of the option.
        header: Names of all columns of the table.

    Raises:
        UsageError: A part or column is unknown, a column is used twice, or a column that a search needs is missing.
    """
    columns = [_column(part, name, header) for part, name in pairs(texts, "--columns", "PART=COLUMN", EXAMPLE)]
    for column in columns:
        if column.part not in _MANY and sum(each.part is column.part for each in columns) > 1:
            raise UsageError(f"--columns: {column.part.value} is there twice", "only time and other may be several")
        if sum(each.name == column.name for each in columns) > 1:
            raise UsageError(f"--columns: the column {column.name!r} is used twice")
    for column in columns:
        if column.part is ColumnContent.TIME and _RATE.search(column.name.lower()):
            raise not_a_time(column.name, "by its name this is a rate", header)
    for part in _OBSERVED:
        if not any(column.part is part for column in columns):
            raise UsageError(f"--columns names no {part.value}", f"add {part.value}=COLUMN; {_the_table_has(header)}")
    if not any(column.is_knob for column in columns):
        knobs = ", ".join(part.value for part in ColumnContent if part not in _OBSERVED)
        raise UsageError("--columns names no knob", f"add one of {knobs}, such as power_limit=COLUMN")
    return columns


def not_a_time(name: str, why: str, header: Sequence[str]) -> UsageError:
    """Error for a column that was given as a time and cannot be one.

    Args:
        header: Names of all columns of the table. A time among them is the remedy.
    """
    times = [each for each in header if _TIME.search(each.lower()) and not _RATE.search(each.lower())]
    others = [f"time={each}" for each in times if each != name]
    give = f"give {' or '.join(others[:3])}" if others else f"give a column of seconds, such as 1 / {name}"
    return UsageError(f"--columns: time={name}: {why}, and a time is needed", give)


def pairs(texts: Iterable[str], option: str, form: str, example: str) -> list[tuple[str, str]]:
    """Pairs `A=B` in the values of an option. A value may have several, with commas between them.

    Pairs that contain commas are quoted as in CSV.

    Args:
        texts: Values of the option.
        option: Name of the option, for a message.
        form: Form of a pair, for a message.
        example: Example of a pair, for a message.

    Raises:
        UsageError: A pair does not have that form.
    """
    found = []
    for text in texts:
        for item in next(csv.reader([text], skipinitialspace=True), []):
            left, equals, right = (each.strip() for each in item.partition("="))
            if not (left and equals and right):
                raise UsageError(f"{option}: expected {form}, got {item.strip()!r}", f"such as {option} {example}")
            found.append((left, right))
    return found


def known(name: str, names: Iterable[str], option: str, what: str) -> str:
    """`name` itself, if it is one of `names`.

    Args:
        name: Name to check.
        names: Names that there are.
        option: Option that has the name, for a message.
        what: Kind of the name, for a message.

    Raises:
        UsageError: `name` is not one of `names`. A hint says the closest name.
    """
    choice = list(names)
    if name in choice:
        return name
    folded = {each.lower(): each for each in choice}
    close = get_close_matches(name.lower()[:200], folded, n=1)
    remedy = f"did you mean {folded[close[0]]!r}?" if close else f"there is: {_listed(choice)}"
    raise UsageError(f"{option}: {what} {name!r} is not there", remedy)


def _column(part_name: str, name: str, header: Sequence[str]) -> MeasuredColumn:
    parts: Mapping[str, ColumnContent] = {part.value: part for part in ColumnContent} | _ALIASES
    if part_name not in parts and part_name in header and name.partition(":")[0] in parts:
        raise UsageError(f"--columns: {part_name}={name} is the wrong way round", f"write {name}={part_name}")
    part = parts[known(part_name, parts, "--columns", "the part")]
    if name in header:
        return MeasuredColumn(part, name)
    bare, colon, unit = (each.strip() for each in name.rpartition(":"))
    if not colon or (bare not in header and unit not in _UNITS[part]):
        known(name, header, "--columns", "the column")
    known(bare, header, "--columns", "the column")
    if unit not in _UNITS[part]:
        units = ", ".join(_UNITS[part]) or "no unit"
        raise UsageError(f"--columns: {part.value}={name}: the unit {unit!r} is not known", f"it takes {units}")
    return MeasuredColumn(part, bare, _UNITS[part][unit])


def _the_table_has(header: Sequence[str]) -> str:
    return f"the table has {_listed(header)}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
