"""Search replay: a search on a measured table. Every measurement is a row with added noise, and the optimum is known.

A user can check the optimizer with it, without a GPU or permission to set its clocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ecoshare.base.measurement import TUNING_LIMIT, Measurement, MeasurementStatus
from ecoshare.knowledge.advisers.measured_table import Row, Table
from ecoshare.knowledge.advisers.setting_search import (
    BUDGET,
    JudgedMeasurement,
    PackedJob,
    SettingEvaluator,
    SettingScore,
    SettingSearch,
)
from ecoshare.knowledge.advisers.table_columns import ColumnContent
from tuner import Knob, Role, Setting, Space

GOOD = 1.05
"""Objective of a good setting / objective of the feasible optimum of the table, at most."""

_ROLES = {
    ColumnContent.CORE_CLOCK: Role.CORE_CLOCK,
    ColumnContent.MEMORY_CLOCK: Role.MEMORY_CLOCK,
    ColumnContent.POWER_LIMIT: Role.POWER_LIMIT,
    ColumnContent.WORK_SIZE: Role.WORK_SIZE,
}


@dataclass(frozen=True, slots=True)
class Static:
    """Setting that is best on average for the other workloads of the table, as a manufacturer would preset it.

    Attributes:
        setting: The setting.
        here: Score of the setting for this workload.
        workloads: Number of other workloads.
    """

    setting: Setting
    here: SettingScore
    workloads: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on a search, by the numbers of the table without noise.

    Attributes:
        optimum: Best setting of the table that keeps the limit.
        optimum_judged: Score of the optimum.
        default_judged: Score of the default setting.
        tried: Score of each measured setting, in order.
        chosen: Setting that the search chose; None if it found no feasible one.
        chosen_judged: Score of the chosen setting; None without one.
        regret: Objective of the chosen setting / objective of the optimum, minus 1; None without a chosen setting, or
            if it breaks the limit and noise had hidden that.
        trials_until_good: Number of measurements up to the first one that keeps the limit and is within `GOOD` of the
            optimum; None if there is none.
        violations: Number of measurements that break the limit.
        cost: Energy of all measurements / energy of one at the default, if each does the same work; None with several
            jobs, because it is unknown how long each went on.
        static: Setting that is best for the other workloads; None if no other workload has the same default.
    """

    optimum: Setting
    optimum_judged: SettingScore
    default_judged: SettingScore
    tried: tuple[SettingScore, ...]
    chosen: Setting | None
    chosen_judged: SettingScore | None
    regret: float | None
    trials_until_good: int | None
    violations: int
    cost: float | None
    static: Static | None

    @property
    def saved(self) -> float | None:
        """Part of the default's energy that the chosen setting saves; None without a chosen setting."""
        return None if self.chosen_judged is None else 1.0 - self.chosen_judged.energy / self.default_judged.energy

    def as_dict(self) -> dict[str, Any]:
        """Verdict as plain data for JSON."""
        return {
            "optimum": _plain(self.optimum, self.optimum_judged),
            "chosen": None if self.chosen is None else _plain(self.chosen, self.chosen_judged),
            "default": {"energy": self.default_judged.energy},
            "saved_against_default": self.saved,
            "regret": self.regret,
            "trials_until_good": self.trials_until_good,
            "violations": self.violations,
            "cost_in_default_trials": self.cost,
        }


class SearchReplay:
    """Search with measurements that are looked up in a table.

    Attributes:
        table: The table.
        default: Default setting.
        search: Search in its present state.
        space: Settings of the rows of the table, without its holes.
    """

    def __init__(
        self,
        table: Table,
        default: Mapping[str, float],
        objective: str = "energy",
        tuning_limit: float = TUNING_LIMIT,
        budget: int = BUDGET,
        seed: int = 0,
        noise: float = 0.0,
    ) -> None:
        """Search replay without measurements so far, but for the default that the search asks for first.

        Args:
            table: The table.
            default: Default setting.
            objective: `energy`, `edp`, `jct` or `makespan`.
            tuning_limit: Time of an iteration at a setting / time at the default setting, at most.
            budget: Most measurements.
            seed: Seed of the search and of the noise.
            noise: Standard deviation of the logarithm of every measured number.

        Raises:
            LookupError: The table has no row for the default.
            ValueError: `SettingSearch` refuses an argument.
        """
        self.table, self.default = table, dict(default)
        self.space = _space(table)
        self._at_default = _measured(table.at(default))
        self._seed, self._noise, self._draw = seed, noise, np.random.default_rng([seed, 1])
        self._first: Measurement | None = self.measure(default)
        # The first measurement stands for the work alone: a table has no other. Several jobs have equal parts of it.
        self.search = SettingSearch(
            self.space, self.default, _jobs(table, self._first), objective, tuning_limit, budget, seed
        )
        self._true = SettingEvaluator(_jobs(table, self._at_default), objective, tuning_limit)

    def measurements(self) -> Iterator[JudgedMeasurement]:
        """Carry out the search, one measurement at a time."""
        while (setting := self.search.next()) is not None:
            # The first setting is the default: the tuner promises that.
            measured, self._first = self._first or self.measure(setting), None
            yield self.search.told(measured)

    def measure(self, setting: Setting) -> Measurement:
        """Numbers of the table at a setting, with noise.

        Raises:
            LookupError: The table has no row for the setting.
        """
        true = _measured(self.table.at(setting))
        times_s = {name: time_s * self._factor() for name, time_s in true.times_s.items()}
        assert true.power_w is not None, "a row has watts"
        return replace(true, power_w=true.power_w * self._factor(), times_s=times_s)

    @property
    def ending(self) -> str:
        """Reason why the search has ended, in words."""
        return "it goes on" if self.search.ending is None else self.search.ending.value

    def words(self, where: Sequence[str]) -> str:
        """Title of the search: file, conditions, objective, seed and noise.

        Args:
            where: Conditions of `--where`.
        """
        rows = f", {', '.join(where)}" if where else ""
        noise = f", noise {100 * self._noise:g} %" if self._noise else ""
        return f"{Path(self.table.file).name}{rows}: {self.search.objective}, seed {self._seed}{noise}"

    def truth(self) -> list[tuple[dict[str, float], SettingScore]]:
        """Every setting of the table with its score."""
        judge = self._true.judge
        return [
            (self.table.setting(point), judge(_measured(row), self._at_default))
            for point, row in self.table.rows.items()
        ]

    def verdict(self) -> Verdict:
        """Verdict on the search so far."""
        truth = self.truth()
        judged = {tuple(setting.items()): each for setting, each in truth}
        optimum, at_best = min(((s, j) for s, j in truth if j.feasible), key=lambda pair: pair[1].objective)
        tried = [judged[_key(each.requested)] for each in self.search.measurements]
        good = [
            number
            for number, each in enumerate(tried, 1)
            if each.feasible and each.objective <= GOOD * at_best.objective
        ]
        chosen = self.search.best
        at_chosen = None if chosen is None else judged[_key(chosen)]
        return Verdict(
            optimum=optimum,
            optimum_judged=at_best,
            default_judged=judged[_key(self.default)],
            tried=tuple(tried),
            chosen=chosen,
            chosen_judged=at_chosen,
            regret=at_chosen.objective / at_best.objective - 1.0 if at_chosen and at_chosen.feasible else None,
            trials_until_good=good[0] if good else None,
            violations=sum(not each.feasible for each in tried),
            cost=sum(each.energy for each in tried) if len(self.table.times) == 1 else None,
            static=self._static(),
        )

    def _static(self) -> Static | None:
        """Best setting on average for the other workloads, each against its own default.

        Only workloads with the same default and settings that all of them have count.
        """
        point = tuple(self.default.values())
        judge = self._true.judge
        values: dict[tuple[float, ...], list[float]] = {}
        others = [rows for rows in self.table.others if point in rows]
        for rows in others:
            for each, row in rows.items():
                judged = judge(_measured(row), _measured(rows[point]))
                values.setdefault(each, []).append(math.log(judged.objective) if judged.feasible else math.inf)
        common = {
            each: sum(logs) for each, logs in values.items() if len(logs) == len(others) and each in self.table.rows
        }
        if not common:
            return None
        best = min(common, key=lambda each: (common[each], each))
        here = judge(_measured(self.table.rows[best]), self._at_default)
        return Static(self.table.setting(best), here, len(others))

    def _factor(self) -> float:
        return math.exp(self._noise * float(self._draw.standard_normal()))


def _space(table: Table) -> Space:
    """Space of the table's settings, in the order of its rows."""
    columns = list(zip(*table.rows, strict=True))
    knobs = [
        Knob(knob.name, tuple(sorted(set(values))), _ROLES.get(knob.part, Role.OTHER))
        for knob, values in zip(table.knobs, columns, strict=True)
    ]
    return Space(knobs, (table.setting(point) for point in table.rows))


def _jobs(table: Table, default: Measurement) -> list[PackedJob]:
    assert default.power_w is not None, "a row has watts"
    return [PackedJob(column.name, default.power_w / len(table.times)) for column in table.times]


def _measured(row: Row) -> Measurement:
    """Row as a measurement. The setting is the caller's, since a table has knobs that no device has."""
    return Measurement((), MeasurementStatus.MEASURED, row.power_w, times_s=dict(row.times_s))


def _key(setting: Setting) -> tuple[tuple[str, Any], ...]:
    return tuple(setting.items())


def _plain(setting: Setting, judged: SettingScore | None) -> dict[str, Any]:
    found = {"setting": dict(setting)}
    return found if judged is None else {**found, "energy": judged.energy, "interference": judged.interference}
