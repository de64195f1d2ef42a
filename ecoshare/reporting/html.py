"""Writes a run as one HTML file that works offline: its content security policy forbids all requests.

Unknown values are marked as not known. Joules always stand with their source, such as `measured`.
"""

from __future__ import annotations

import time
from importlib.resources import files

from ecoshare.base.joules import ATTRIBUTED, MEASURED
from ecoshare.base.plural import counted
from ecoshare.jobs.quantities import format_duration, format_energy
from ecoshare.record.results.energy_summary import DeviceEnergy
from ecoshare.record.results.run_summary import RunSummary
from ecoshare.record.run_data import RunData
from ecoshare.reporting import charts
from ecoshare.reporting.charts.look import inline_svg
from ecoshare.reporting.reason_words import listed
from ecoshare.reporting.report_sections import DrawnChart, ReportInput, all_sections, fragment
from ecoshare.reporting.tables.job_table import NOT_KNOWN, shown_jobs
from ecoshare.reporting.tables.job_table import energy_words as joules
from ecoshare.reporting.tables.run_table import UNKNOWN_SAVINGS, sharing, unknown_savings

_MOST_REASONS = 8
_OTHER_STATES = ("pruned", "failed", "cancelled", "running", "queued", "arriving")


def html(data: RunData) -> str:
    """The report, as the text of an HTML file."""
    summary = data.summary
    report = ReportInput(data, _charts(data), shown_jobs(summary))
    template = (files("ecoshare.reporting") / "report.html.j2").read_text(encoding="utf-8").rstrip()
    return fragment(
        template,
        summary=summary,
        opened=_opened(data),
        energy_words=energy_words(data) if summary.energy is not None else [],
        figures=_figures(summary),
        what=_what(data),
        sharing="" if unknown_savings(summary) else _sentence(sharing(summary)),
        unknown=_unknown(data),
        sections=[section.html() for section in all_sections(report)],
    )


def energy_words(data: RunData) -> list[str]:
    """Sentences about the joules of a report: source, meter, resolution and gaps."""
    energy, session = data.summary.energy, data.energy.session
    if energy is None:
        reasons = f": {'; '.join(data.energy.faults)}" if data.energy.faults else ""
        return [f"The energy of this run is {NOT_KNOWN}{reasons}."]
    scope = {"gpu": "GPU", "cpu": "processors"}.get(energy.scope, energy.scope)
    source = energy.source
    words = [f"The joules of the {scope} were {source}: {energy.about}."]
    if source == MEASURED:
        words.append(
            f"Joules of single jobs are {ATTRIBUTED}: a device has one counter, so what was measured beyond idle is "
            "split by the work that each job did. They are estimates."
        )
    else:
        words.append("Those of single jobs are modelled too. A model compares runs on one machine at best.")
    if session is None:
        words.append(f"How often the meter updates is {NOT_KNOWN}.")
    elif session.period_s:
        words.append(f"The meter ({session.meter}) updates every {format_duration(session.period_s)}.")
    else:
        words.append(f"The meter ({session.meter}) gives a new value at every reading.")
    covered = f"{_percent(energy.covered)} of the time is covered"
    rest = f"; for the rest joules are {NOT_KNOWN} ({'; '.join(data.energy.faults) or 'no reason given'})"
    words.append(covered + ("." if energy.covered >= 1.0 else rest + "."))
    if energy.standard_error_j is not None:
        part = f", which looks {session.looks:.0%} of the time" if session is not None and session.looks < 1.0 else ""
        words.append(
            f"The standard error is that of the meter's resolution in time{part}; its calibration is not in it."
        )
    return words


def _charts(data: RunData) -> list[DrawnChart]:
    with charts.settings("report"):
        found = charts.charts(data)
    return [DrawnChart(each.key, each.title, each.caption, inline_svg(each)) for each in found]


def _what(data: RunData) -> str:
    """Jobs, devices, lanes, policy and objective in a sentence."""
    summary = data.summary
    count = len(summary.jobs)
    devices = [f"{each.name} ({each.model})" if each.model else each.name for each in summary.devices]
    lanes = f"{summary.lanes} lane{'' if summary.lanes == 1 else 's'}"
    sharing_words = "shared" if count > 1 else "ran on"
    return (
        f"{count} job{'' if count == 1 else 's'} {sharing_words} {listed(devices)} in {lanes}, "
        f"policy {summary.policy}, objective {summary.objective}."
    )


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}." if words else ""


def _unknown(data: RunData) -> list[tuple[str, list[str]]]:
    """Sentences about what is not known, each with its reasons if they are many."""
    summary = data.summary
    found: list[tuple[str, list[str]]] = []
    if summary.energy is None:
        found += [(words, []) for words in energy_words(data)]
    elif summary.idle_energy_j is None:
        found.append((f"The idle part of the energy is {NOT_KNOWN}.", []))
    if summary.makespan_s is None:
        found.append((f"The makespan is {NOT_KNOWN}: no job has finished.", []))
    if summary.mean_jct_s is None:
        found.append((f"The mean JCT is {NOT_KNOWN}: no job has completed.", []))
    reasons = unknown_savings(summary)
    if len(reasons) > 1:
        shown = reasons[:_MOST_REASONS]
        if more := len(reasons) - len(shown):
            shown.append(f"and {more} more, which summary.json has")
        found.append((f"{_sentence(UNKNOWN_SAVINGS)[:-1]}:", shown))
    elif reasons:
        found.append((_sentence(sharing(summary)), []))
    return found


def _figures(summary: RunSummary) -> list[tuple[str, str, str]]:
    """Name, value and remark of the key figures that are known."""
    states = [job.state for job in summary.jobs]
    completed = states.count("completed")
    others = ", ".join(f"{states.count(state)} {state}" for state in _OTHER_STATES if state in states)
    energy, idle_j = summary.energy, summary.idle_energy_j
    source = energy.source if energy is not None else ""
    part = ATTRIBUTED if source == MEASURED else source
    figures = []
    if energy is not None:
        figures.append(("energy", joules(energy), _covered(energy)))
    if summary.mean_jct_s is not None:
        figures.append(("mean JCT", format_duration(summary.mean_jct_s), f"of the {completed} completed"))
    if summary.makespan_s is not None:
        figures.append(("makespan", format_duration(summary.makespan_s), "first arrival to last finish"))
    if summary.away_s is not None:
        figures.append(("away", format_duration(summary.away_s), "other runs of this machine had the devices"))
    figures.append(("jobs", f"{completed} of {len(states)} completed" if completed else str(len(states)), others))
    if idle_j is not None:
        figures.append(("idle part", f"{format_energy(idle_j)} {part}", _idle_caption(summary)))
    if summary.search_energy_j:
        cost = f"{format_energy(summary.search_energy_j)} {source}"
        tried = sum(each.settings_tried for each in summary.packings)
        settings = f", and on {counted(tried, 'setting')} tried" if tried else ""
        words = f"spent on measuring job classes in {counted(len(summary.windows), 'window')}{settings}"
        figures.append(("search", cost, words))
    return figures


def _covered(energy: DeviceEnergy) -> str:
    return "" if energy.covered >= 1.0 else f"of {_percent(energy.covered)} of the time"


def _idle_caption(summary: RunSummary) -> str:
    if summary.energy is not None and summary.idle_power_w is None:
        return "while no job worked; the idle power of the device is not known"
    return _share(summary.idle_energy_j, summary.energy)


def _share(idle_j: float | None, energy: DeviceEnergy | None) -> str:
    return f"{_percent(idle_j / energy.value_j)} of it" if idle_j is not None and energy and energy.value_j else ""


def _opened(data: RunData) -> str:
    at_s = data.environment.get("opened_unix_s")
    return NOT_KNOWN if at_s is None else time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_s))


def _percent(part: float) -> str:
    """A part of 1 in per cent; below 1 it is never rounded up to 100 %."""
    return "100 %" if part >= 1.0 else f"{min(100 * part, 99.9):.3g} %"
