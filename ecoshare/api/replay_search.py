"""`replay`: a search for the best setting in a measured table instead of on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoshare.api.request_values import check_least
from ecoshare.base.measurement import OBJECTIVES, TUNING_LIMIT
from ecoshare.errors import UsageError, did_you_mean
from ecoshare.option_fields import request_class, with_fields

if TYPE_CHECKING:
    from ecoshare.base.disk import AnyPath
    from ecoshare.knowledge.advisers.search_replay import SearchReplay, Verdict
    from ecoshare.knowledge.tuning_store import MeasurementRecord, TuningResult


@request_class
class ReplayRequest:
    """Request for a search in a table. The fields are the options of `ecoshare tune --replay`.

    Attributes:
        table: Path of the table (CSV).
        columns: Meaning of the columns, such as `power_limit=limit:W`; docs/tuning.md lists the parts.
        where: Conditions on the rows to use, such as `network=resnet50`.
        default: Default setting by the names of the columns, such as `limit=300`. Clocks and power limits that are
            not named are at their largest.
        objective: `energy`, `edp`, `jct` or `makespan`.
        tuning_limit: Upper bound of an iteration's time at a setting / its time at the default setting.
        budget: Most measurements.
        seed: Seed of the search and of the noise.
        noise: Standard deviation of the logarithm of every number of the table, 0 to 0.5: 0.02 is 2 percent.
        begins: Called with the search before its first measurement.
        measured: Called with each measurement.
    """

    table: AnyPath
    columns: Sequence[str]
    where: Sequence[str] = ()
    default: Sequence[str] = ()
    objective: str = "energy"
    tuning_limit: float = TUNING_LIMIT
    budget: int = 20
    seed: int = 0
    noise: float = 0.02
    begins: Callable[[SearchReplay], None] = lambda _search: None
    measured: Callable[[MeasurementRecord], None] = lambda _record: None


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Result of a search in a table.

    Attributes:
        tuning: Settings, measurements and savings, with noise.
        verdict: Judgement by the table, without noise.
        search: The search.
        title: Description of the search.
    """

    tuning: TuningResult = field(repr=False)
    verdict: Verdict = field(repr=False)
    search: SearchReplay = field(repr=False)
    title: str

    @property
    def ending(self) -> str:
        """Reason for the end of the search."""
        return self.search.ending

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as `ecoshare tune --replay --json` prints it."""
        return {**self.tuning.model_dump(mode="json"), "replay": self.verdict.as_dict()}

    def draw(self, path: AnyPath) -> None:
        """Draw energy against slowdown of all settings into a file: .svg, .html or .png.

        Raises:
            UsageError: The name of the file has another ending.
            UnfitEnvironment: The file cannot be written.
        """
        from ecoshare.reporting.charts.search_picture import check_picture, draw, ground_of

        check_picture(Path(path))
        draw(Path(path), self.tuning, self.title, ground_of(self.search, self.verdict))


def replay(table: AnyPath | ReplayRequest, /, **fields: Any) -> ReplayResult:
    """Search the best setting of a measured table, and judge the search by all of the table.

    Args:
        table: A request, or its `table`.
        fields: Other fields of the `ReplayRequest`.

    Raises:
        UsageError: A file cannot be read, a field names something that the table does not have, or is out of range.
        InvalidJobFile: The table has mistakes; the error lists them, with line and column.
    """
    request = with_fields(table, fields) if isinstance(table, ReplayRequest) else ReplayRequest(table=table, **fields)
    for name, least in (("budget", 1), ("seed", 0)):
        check_least(name, getattr(request, name), least)
    check_least("noise", request.noise, 0.0, 0.5)
    from ecoshare.knowledge.advisers.measured_table import read

    measured = read(Path(request.table), request.columns, request.where)
    default = measured.default(request.default)

    from ecoshare.knowledge.advisers.search_replay import SearchReplay  # after all checks: torch takes seconds to load
    from ecoshare.knowledge.tuning_store import MeasurementRecord
    from ecoshare.reporting.search_text import replayed

    objective = request.objective
    try:
        search = SearchReplay(
            measured, default, objective, request.tuning_limit, request.budget, request.seed, request.noise
        )
    except ValueError as error:
        hint = did_you_mean(objective, OBJECTIVES) if objective not in OBJECTIVES else ""
        raise UsageError(str(error), hint) from error
    request.begins(search)
    for each in search.measurements():
        request.measured(MeasurementRecord.model_validate(each.as_dict()))
    verdict = search.verdict()
    return ReplayResult(replayed(search, verdict), verdict, search, search.words(request.where))
