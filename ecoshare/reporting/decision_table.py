"""Table of the packings of a run: jobs that ran beside each other, their speeds and watts, and the outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ecoshare.jobs.quantities import format_duration, format_energy, number
from ecoshare.record.packing_timeline import OBSERVED_S
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.results.packing_summary import PackingSpeeds, PackingSummary
from ecoshare.record.results.run_summary import RunSummary
from ecoshare.record.setting_history import values_words
from ecoshare.reporting.job_table import NOT_KNOWN
from ecoshare.reporting.figures import share
from ecoshare.reporting.reason_words import listed

NONE = "-"
NOT_FORESEEN, ALONE = "not foreseen", "alone"
_MOST_NAMES = 3
_MOST_ROWS = 20

_EMPTY = {NONE, NOT_FORESEEN, ALONE}
"""Cells without information. A column that has only these is left out, as under a policy that does not pack."""

Cell = list[str]
"""Lines of a cell: one for each class, or one for the whole packing."""


def decision_rows(summary: RunSummary) -> tuple[list[dict[str, Cell]], int]:
    """Rows for the packings that ran longest, and the number of packings that are left out.

    A row maps columns to cells. Rows have the order in which the packings first ran. Empty columns are left out.
    """
    packings = summary.packings
    longest = sorted(packings, key=lambda each: -each.duration_s)[:_MOST_ROWS]
    shown = [each for each in packings if any(each is kept for kept in longest)]
    rows = [_row(each, summary) for each in shown]
    columns = [name for name in (rows[0] if rows else {}) if not all(set(row[name]) <= _EMPTY for row in rows)]
    return [{name: row[name] for name in columns} for row in rows], len(packings) - len(shown)


def _row(each: PackingSummary, summary: RunSummary) -> dict[str, Cell]:
    source = summary.energy.source if summary.energy is not None else ""
    names = list(dict.fromkeys(name for lane in each.classes for name in lane))
    is_alone = sum(map(len, each.classes)) == 1
    predicted, measured, observed = each.predicted or PackingSpeeds(), each.measured or PackingSpeeds(), each.observed
    speeds = {**observed.speeds, **measured.speeds}
    watts = observed.power_w if measured.power_w is None else measured.power_w
    ratio = each.energy_ratio
    return {
        "jobs": _jobs(each, names, summary.jobs),
        "ran for": [format_duration(each.duration_s)],
        "energy": [NOT_KNOWN if each.energy_j is None else f"{format_energy(each.energy_j)} {source}"],
        "speed expected": [ALONE] if is_alone else _speeds(names, predicted.speeds, {}, NOT_FORESEEN),
        "measured": [ALONE] if is_alone else _speeds(names, speeds, observed.missing, NOT_KNOWN),
        "power expected": _watts(predicted.power_w, NOT_FORESEEN),
        "drawn": _watts(watts, NOT_KNOWN if each.duration_s >= OBSERVED_S else "too short", source),
        "settings tried": [str(each.settings_tried) if each.settings_tried else NONE],
        "setting": [NONE if each.setting is None else values_words(each.setting) or "the default"],
        "energy there": [NONE if ratio is None else f"{share(ratio)} of that at the default"],
        "outcome": [each.verdict or NONE],
    }


def _jobs(each: PackingSummary, names: Sequence[str], jobs: Iterable[JobSummary]) -> Cell:
    """Names of the jobs of each class, in the order of `names`, like the speeds."""
    classes = {job.name: job.job_class for job in jobs}
    return [_few([job for job in each.jobs if classes.get(job) == name]) for name in names]


def _few(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return listed(names) if rest <= 0 else f"{', '.join(names[:_MOST_NAMES])} and {rest} more"


def _speeds(names: Iterable[str], speeds: Mapping[str, float], why: Mapping[str, str], otherwise: str) -> Cell:
    """Speed of each class, or a word or two of reason if it has none."""
    told = [f"{speeds[name]:.2f}" if name in speeds else why.get(name, otherwise) for name in names]
    return told[:1] if len(set(told)) == 1 and not speeds else told


def _watts(power_w: float | None, why: str, source: str = "") -> Cell:
    return [why if power_w is None else f"{number(power_w)} W {source}".strip()]
