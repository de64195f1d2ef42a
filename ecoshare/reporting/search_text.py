"""Shows a search: a line for each measurement as it comes, then the chosen setting and its savings."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ecoshare.base.measurement import MeasurementStatus
from ecoshare.base.plural import counted
from ecoshare.jobs.quantities import format_energy, number
from ecoshare.knowledge.tuning_store import KnobRange, KnobValues, MeasurementRecord, TuningResult
from ecoshare.reporting.figures import UNKNOWN, Writer, share
from ecoshare.reporting.tables.text_table import TableColumn, print_columns

if TYPE_CHECKING:
    from ecoshare.knowledge.advisers.search_replay import SearchReplay, Verdict


STATUS_WORDS = {
    MeasurementStatus.CENSORED: "stopped early",
    MeasurementStatus.CONTAMINATED: "disturbed",
    MeasurementStatus.FAILED: "failed",
}


_NAME = 14
"""Width of a value without a number, such as a power profile."""


class TrialLines:
    """Prints the measurements of a search, one line each."""

    def __init__(self, knobs: Sequence[KnobRange], console: Console, achieved: bool) -> None:
        """Prepare the columns; nothing is printed yet.

        Args:
            achieved: Whether to show achieved values, too, since they can differ from the requested ones.
        """
        self._knobs, self._achieved = knobs, achieved
        self._say = Writer(console)
        self._widths = {
            knob.name: max(
                len(knob.name),
                *(_NAME if each is None else len(_value(each, knob.unit)) for each in (knob.lowest, knob.highest)),
                8,
            )
            for knob in knobs
        }

    def heading(self) -> None:
        """Print the heading above the first measurement."""
        cells = self._padded([(knob.name, "achieved") for knob in self._knobs])
        self._say.line("  ".join(["  no.", *cells, "energy", "interference", "limit", " best"]), "bold")

    def line(self, record: MeasurementRecord) -> None:
        """Print one measurement."""
        cells = self._padded(
            [
                (_value(record.requested[knob.name], knob.unit), _value(record.achieved.get(knob.name), knob.unit))
                for knob in self._knobs
            ]
        )
        verdict = {True: "kept", False: "broken", None: ""}[record.feasible]
        judged = [f"{ratio(record.energy):>6}", f"{slowest(record.interference):>12}", f"{verdict:<6}"]
        words = "  ".join([f"{record.number:>5}", *cells, *judged, "*" if record.best else " "])
        remarks = [STATUS_WORDS.get(record.status, ""), *record.reasons, record.note]
        words += "  " + ", ".join(remark for remark in remarks if remark)
        self._say.line(words.rstrip(), "red" if record.feasible is False else "green" if record.best else "")

    def _padded(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Padded cells of each knob: the requested value and, if shown, the achieved value."""
        shown = 2 if self._achieved else 1
        widths = [self._widths[knob.name] for knob in self._knobs]
        return [f"{cell:>{width}}" for pair, width in zip(pairs, widths, strict=True) for cell in pair[:shown]]


@dataclass(frozen=True, slots=True)
class _Row:
    """Row for one setting in the table that ends a search."""

    name: str
    setting: Mapping[str, float | str] | None
    energy: float | None
    interference: Mapping[str, float] | None
    remark: str = ""


def print_result(tuned: TuningResult, ending: str, console: Console, verdict: Verdict | None = None) -> None:
    """Print the chosen setting, its savings and the cost of the search.

    Args:
        ending: Reason why the search has ended.
        verdict: Judgement by a replayed table without noise; None for a search on a device.
    """
    say = Writer(console)
    console.print()
    say.line(f"{counted(len(tuned.trials), 'measurement')}; {ending}")
    rows = _live_rows(tuned) if verdict is None else _replay_rows(tuned, verdict)
    console.print()
    print_columns(list(_columns(tuned, rows, say)), console)
    console.print()
    for line in _sentences(tuned, verdict):
        say.line(line)


def _columns(tuned: TuningResult, rows: Sequence[_Row], say: Writer) -> Iterator[TableColumn]:
    def column(heading: str, cells: Iterable[str], **kind: Any) -> TableColumn:
        styles = ["bold" if row.name == "chosen" else "" for row in rows]
        return TableColumn(say.text(heading), [say.text(*each) for each in zip(cells, styles, strict=True)], **kind)

    yield column("", [row.name for row in rows])
    for knob in tuned.knobs:
        settings = [UNKNOWN if row.setting is None else _value(row.setting[knob.name], knob.unit) for row in rows]
        yield column(knob.name, settings, right=True)
    yield column("energy", [ratio(row.energy, 3) for row in rows], right=True)
    slow = [slowest(row.interference or {}).partition(" ") for row in rows]
    yield column("interference", [value for value, _, _ in slow], right=True)
    if any(job for _, _, job in slow):
        yield column("of", [job for _, _, job in slow], is_name=True, lesser=1)
    if any(row.remark for row in rows):
        yield column("", [row.remark for row in rows], is_prose=True)


def knobs_of(replay: SearchReplay) -> tuple[KnobRange, ...]:
    """The knobs of a replay, with the units of its table."""
    return tuple(KnobRange.model_validate(each) for each in _told(replay)["knobs"])


def replayed(replay: SearchReplay, verdict: Verdict) -> TuningResult:
    """The result of a replay, as a stored tuning result; each measurement did one unit of the table's work."""
    table, search = replay.table, replay.search
    single = len(table.times) == 1
    joules = [
        None if each.found.power_w is None or not single else each.found.power_w * sum(each.found.times_s.values())
        for each in search.measurements
    ]
    static = verdict.static
    return TuningResult.model_validate(
        {
            **_told(replay),
            "packing": [[column.name] for column in table.times],
            "device": {"model": f"replay of {table.file}", "uuid": None},
            "trials": [
                {**each.as_dict(), "joules": spent} for each, spent in zip(search.measurements, joules, strict=True)
            ],
            "best_static": None
            if static is None
            else {
                "setting": static.setting,
                "energy": static.here.energy,
                "source": f"best on average of {_others(static.workloads)} in the table",
            },
            "search_energy_j": sum(each for each in joules if each is not None) if single else None,
            "made_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        }
    )


def setting_words(setting: Mapping[str, float | str] | None, knobs: Sequence[KnobRange]) -> str:
    """A setting in words, such as `power_limit 175 W, batch_size 360`."""
    if setting is None:
        return "none that keeps the limit was found"
    return ", ".join(f"{knob.name} {_value(setting[knob.name], knob.unit)}" for knob in knobs)


def _told(replay: SearchReplay) -> dict[str, Any]:
    return replay.search.as_dict({knob.name: knob.unit for knob in replay.table.knobs})


def _live_rows(tuned: TuningResult) -> list[_Row]:
    rows = [_Row("default", tuned.default, *worth(tuned, tuned.default))]
    rows.append(_Row("chosen", tuned.best, *worth(tuned, tuned.best)))
    if (static := tuned.best_static) is not None:
        rows.append(_Row("best static", static.setting, static.energy, None))
    return rows


def _replay_rows(tuned: TuningResult, verdict: Verdict) -> list[_Row]:
    default, chosen, best = verdict.default_judged, verdict.chosen_judged, verdict.optimum_judged
    rows = [_Row("default", tuned.default, default.energy, default.interference)]
    if chosen is None:
        rows.append(_Row("chosen", None, None, None, "nothing keeps the limit"))
    else:
        over = "" if chosen.feasible else "over the limit"
        rows.append(_Row("chosen", verdict.chosen, chosen.energy, chosen.interference, over))
    rows.append(_Row("best of table", verdict.optimum, best.energy, best.interference))
    if (static := verdict.static) is not None:
        over = "" if static.here.feasible else "over the limit"
        rows.append(_Row("best static", static.setting, static.here.energy, static.here.interference, over))
    return rows


def _sentences(tuned: TuningResult, verdict: Verdict | None) -> list[str]:
    measurements = counted(len(tuned.trials), "measurement")
    if verdict is None:
        saved = tuned.saved_against_default
        at_what_time = _at_what_time(worth(tuned, tuned.best)[1] or {})
        said = ["nothing feasible was found: the default stays." if saved is None else f"{saves(saved)}{at_what_time}."]
        if tuned.with_processors:
            said.append(_of_what(tuned))
        spent = "" if tuned.search_energy_j is None else f", {format_energy(tuned.search_energy_j)}"
        if tuned.best_static is not None:
            said.append(f"best static: {tuned.best_static.source}.")
        words = (
            f"objective {tuned.objective}, each job within {tuned.tuning_limit:g} times its time at the default setting"
        )
        return [*said, f"search: {measurements}{spent}; {tuned.violations} broke the limit ({words})."]
    at_default = verdict.default_judged.energy
    said = []
    if (chosen := verdict.chosen_judged) is not None:
        most, saved = 1.0 - verdict.optimum_judged.energy / at_default, 1.0 - chosen.energy / at_default
        words = saves(saved) + _at_what_time(chosen.interference) + as_measured(saved, tuned.saved_against_default)
        said.append(f"{words}; the best of the table that keeps the limit {saves(most)}.")
        if verdict.regret is not None:
            said.append(f"objective {tuned.objective}: {share(verdict.regret)} above the best of the table.")
        else:
            over = max(chosen.interference.values()) / tuned.tuning_limit - 1.0
            said.append(f"without the noise the chosen setting is {share(over)} over the limit.")
    if tuned.best_static is not None:
        said.append(f"best static: {tuned.best_static.source}.")
    good = verdict.trials_until_good
    cost = "" if verdict.cost is None else f", {number(verdict.cost)} times the joules of one at the default"
    said.append(
        f"search: {measurements}{cost}; {verdict.violations} broke the limit; the first within 5 % of the best "
        f"was {'none' if good is None else f'number {good}'}."
    )
    return said


def _of_what(tuned: TuningResult) -> str:
    """Devices that spend the energy of the result, in words, with their watts at the default setting."""
    own = [each for each in tuned.trials if each.requested == tuned.default and each.power_w and each.processors_w]
    words = "energy is that of the GPU and of the processors (RAPL)"
    if not own:
        return f"{words}."
    gpu_w, processors_w = fmean(each.power_w or 0.0 for each in own), fmean(each.processors_w or 0.0 for each in own)
    return f"{words}: {gpu_w:.0f} W and {processors_w:.0f} W at the default setting."


def saves(part: float) -> str:
    """Saved part of the default's energy in words; a negative part is more energy."""
    return (
        f"saves {share(part)} of the default's energy"
        if part >= 0.0
        else f"takes {share(-part)} more energy than the default"
    )


def as_measured(saved: float, measured: float | None) -> str:
    """The saved part by noisy measurements, if it differs from that of the table; else empty."""
    if measured is None or share(measured) == share(saved):
        return ""
    return f" by the table's own numbers ({share(measured)} by its measurements, noise included)"


def _at_what_time(interference: Mapping[str, float]) -> str:
    """Additional time of the slowest job in words; empty if it is not known."""
    if not interference:
        return ""
    more = max(interference.values()) - 1.0
    of = " of the slowest job" if len(interference) > 1 else ""
    return f" at {share(abs(more))} {'more' if more >= 0.0 else 'less'} time{of}"


def worth(tuned: TuningResult, setting: KnobValues | None) -> tuple[float | None, dict[str, float] | None]:
    """Mean energy and mean interference by job of a setting's measurements; None and None if it has none."""
    own = [record for record in tuned.trials if record.requested == setting and record.energy is not None]
    if not own:
        return None, None
    energy = fmean(record.energy for record in own if record.energy is not None)
    return energy, {job: fmean(record.interference[job] for record in own) for job in own[0].interference}


def _value(value: float | str | None, unit: str) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, str):
        return value
    shown = f"{value:.0f}" if value >= 1000.0 and unit else f"{value:.6g}"
    return f"{shown} {unit}".rstrip()


def ratio(value: float | None, digits: int = 3) -> str:
    """A ratio with a number of decimals; `-` if it is not known."""
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def slowest(interference: Mapping[str, float]) -> str:
    """Largest interference, with the name of its job if there are several; `-` if there is none."""
    if not interference:
        return UNKNOWN
    name = max(interference, key=lambda job: interference[job])
    shown = f"{interference[name]:.3f}"
    return shown if len(interference) == 1 else f"{shown} {name}"


def _others(count: int) -> str:
    return counted(count, "other workload")


class SearchLines:
    """Display of a search: one line for each measurement. The search goes on if its reader is gone."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines: TrialLines | None = None

    def begins(self, knobs: Sequence[KnobRange]) -> None:
        """Note the knobs, which are the columns."""
        self._lines = TrialLines(knobs, self._console, achieved=True)

    def measured(self, record: MeasurementRecord) -> None:
        """Print a measurement, and the heading before the first one."""
        if self._lines is None:
            return
        try:
            if record.number == 1:
                self._lines.heading()
            self._lines.line(record)
            sys.stdout.flush()
        except (OSError, SystemExit):  # rich raises SystemExit if its reader is gone
            self._lines = None
