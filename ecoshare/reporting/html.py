"""Writes a run as one HTML file that works offline: its content security policy forbids all requests.

Unknown values are marked as not known. Joules always stand with their source, such as `measured`.
"""

from __future__ import annotations

import re
import time
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from ecoshare.common.plural import counted
from ecoshare.jobs.quantities import format_duration, format_energy, format_size, number
from ecoshare.record.run_data import RunData
from ecoshare.record.setting_history import setting_words
from ecoshare.record.sweep_summary import ranked
from ecoshare.reporting import charts
from ecoshare.reporting.charts.svg import inline_svg
from ecoshare.reporting.decision_table import decision_rows
from ecoshare.reporting.job_table import LESSER, NOT_KNOWN, job_table
from ecoshare.reporting.job_table import energy_words as joules
from ecoshare.reporting.reason_words import listed
from ecoshare.reporting.sweep_table import metric_name
from ecoshare.reporting.sweep_table import words as sweep_words
from ecoshare.reporting.verdicts import sharing, verdicts
from ecoshare.values.joules import ATTRIBUTED, MEASURED

_STATES = ("completed", "pruned", "failed", "cancelled", "running", "queued", "arriving")
_MOST_TRIALS = 100
"""Most trials of all sweeps in the tables of jobs: the best ones, then failed ones."""
_MOST_JOBS = 500
"""Most jobs in these tables: those that did not complete, then those with the longest JCT."""
_MACHINE = {
    "ecoshare": "ecoshare",
    "torch": "torch",
    "python": "Python",
    "platform": "system",
    "intra_op_threads": "threads of an operation",
    "mps": "MPS",
}
"""Entries of environment.json that are shown, with their labels. Other entries are private."""


def html(data: RunData) -> str:
    """The report, as the text of an HTML file."""
    drawn: list[dict[str, Any]] = []
    not_drawn: list[dict[str, Any]] = []
    for chart in _charts(data):
        svg = inline_svg(chart)
        shown = {"key": chart.key, "title": chart.title, "caption": chart.caption, "svg": svg}
        (not_drawn if svg is None else drawn).append(shown)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["with_code"] = _with_code
    template = environment.from_string((files("ecoshare.reporting") / "report.html.j2").read_text(encoding="utf-8"))
    summary = data.summary
    shown_jobs = _shown(summary)
    return template.render(
        summary=summary,
        opened=_opened(data),
        energy_words=energy_words(data),
        figures=_figures(summary),
        what=_what(data),
        sharing=_sentence(sharing(summary)),
        first_charts=[each for each in drawn if each["key"] == "lanes"],
        charts=[each for each in drawn if each["key"] != "lanes"],
        not_drawn=not_drawn,
        jobs=job_table(shown_jobs),
        lesser=LESSER,
        left_out=_left_out(summary, shown_jobs),
        errors=[(job["name"], job["error"]) for job in shown_jobs if job["error"] and job["state"] != "pruned"],
        sweeps=_sweeps(data),
        settings=[setting_words(each) for each in summary["settings"]],
        decisions=_decisions(data),
        machine=_machine(data),
        not_known=NOT_KNOWN,
    )


def energy_words(data: RunData) -> list[str]:
    """Sentences about the joules of a report: source, meter, resolution and gaps."""
    energy, session = data.summary["energy"], data.account.session
    if energy is None:
        reasons = f": {'; '.join(data.account.faults)}" if data.account.faults else ""
        return [f"The energy of this run is {NOT_KNOWN}{reasons}."]
    scope = {"gpu": "GPU", "cpu": "processors"}.get(energy["scope"], energy["scope"])
    source = energy["source"]
    words = [f"The joules of the {scope} were {source}: {energy['about']}."]
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
    covered = f"{_percent(energy['covered'])} of the time is covered"
    rest = f"; for the rest joules are {NOT_KNOWN} ({'; '.join(data.account.faults) or 'no reason given'})"
    words.append(covered + ("." if energy["covered"] >= 1.0 else rest + "."))
    if energy["standard_error_j"] is not None:
        words.append("The standard error is that of the meter's resolution in time; its calibration is not in it.")
    return words


def _charts(data: RunData) -> list[charts.Chart]:
    with charts.settings("report"):
        return charts.charts(data)


def _what(data: RunData) -> str:
    """Jobs, devices, lanes, policy and objective in a sentence."""
    summary = data.summary
    count = len(summary["jobs"])
    devices = [
        f"{each['name']} ({each['model']})" if each.get("model") else each["name"] for each in summary["devices"]
    ]
    lanes = f"{summary['lanes']} lane{'' if summary['lanes'] == 1 else 's'}"
    sharing_words = "shared" if count > 1 else "ran on"
    return (
        f"{count} job{'' if count == 1 else 's'} {sharing_words} {listed(devices)} in {lanes}, "
        f"policy {summary['policy']}, objective {summary['objective']}."
    )


def _with_code(words: str) -> Markup:
    """HTML of a sentence, with text between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(words))))


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}." if words else ""


def _figures(summary: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Name, value and remark of the key figures."""
    states = [job["state"] for job in summary["jobs"]]
    counts = ", ".join(f"{states.count(state)} {state}" for state in _STATES if state in states)
    completed = states.count("completed")
    energy, idle_j = summary["energy"], summary["idle_energy_j"]
    source = energy["source"] if energy is not None else ""
    part = ATTRIBUTED if source == MEASURED else source
    figures = [
        ("makespan", _duration(summary["makespan_s"]), "first arrival to last finish"),
        ("mean JCT", _duration(summary["mean_jct_s"]), f"of the {completed} completed"),
        ("energy", joules(energy), ""),
        ("idle part", NOT_KNOWN if idle_j is None else f"{format_energy(idle_j)} {part}", _idle_caption(summary)),
        ("jobs", str(len(states)), counts),
    ]
    if summary["search_energy_j"]:
        cost = f"{format_energy(summary['search_energy_j'])} {source}"
        tried = sum(each["settings_tried"] for each in summary["packings"])
        settings = f", and on {counted(tried, 'setting')} tried" if tried else ""
        words = f"spent on measuring job classes in {counted(len(summary['windows']), 'window')}{settings}"
        figures.append(("search", cost, words))
    return figures


def _shown(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Jobs for the tables, at most `_MOST_JOBS`, in the order of the summary."""
    jobs = _without_most_trials(summary)
    if len(jobs) <= _MOST_JOBS:
        return jobs
    ranked = sorted(jobs, key=lambda job: (job["state"] == "completed", -(job["jct_s"] or 0.0)))
    kept = {job["name"] for job in ranked[:_MOST_JOBS]}
    return [job for job in jobs if job["name"] in kept]


def _without_most_trials(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Jobs without a sweep, and the best and failed trials, at most `_MOST_TRIALS`."""
    trials = [job for job in summary["jobs"] if job["sweep"] is not None]
    if len(trials) <= _MOST_TRIALS:
        return list(summary["jobs"])
    goals = {sweep["name"]: sweep["goal"] for sweep in summary["sweeps"]}
    best = [
        job
        for name, goal in goals.items()
        for job in ranked((job for job in trials if job["sweep"] == name), goal)[: _MOST_TRIALS // (2 * len(goals))]
    ]
    failed = [job for job in trials if job["state"] == "failed"]
    kept = {job["name"] for job in [*best, *failed][:_MOST_TRIALS]}
    return [job for job in summary["jobs"] if job["sweep"] is None or job["name"] in kept]


def _left_out(summary: dict[str, Any], shown: list[dict[str, Any]]) -> str:
    """Sentences about jobs that the tables do not show; empty if they show all."""
    names = {job["name"] for job in shown}
    missing = [job for job in summary["jobs"] if job["name"] not in names]
    jobs = sum(job["sweep"] is None for job in missing)
    trials = len(missing) - jobs
    words = []
    if trials:
        words.append(f"{counted(trials, 'trial is', 'trials are')} left out: neither the best nor failed.")
    if jobs:
        short = counted(jobs, "job with a shorter JCT is", "jobs with a shorter JCT are")
        words.append(f"{short} left out; `ecoshare export --format csv` has all.")
    return " ".join(words)


def _sweeps(data: RunData) -> list[dict[str, Any]]:
    """Words, table of the best trials, and chart of each sweep."""
    found = []
    for sweep in data.summary["sweeps"]:
        with charts.settings("report"):
            chart = charts.search(data, sweep)
        found.append(
            {
                "words": sweep_words(sweep),
                "rows": [_best(trial, sweep) for trial in sweep["best"]],
                "title": chart.title,
                "caption": chart.caption,
                "svg": inline_svg(chart),
            }
        )
    return found


def _best(trial: dict[str, Any], sweep: dict[str, Any]) -> list[tuple[str, str]]:
    """Pairs of column and cell for a trial. They are no dict, since the user's names may equal our column names."""
    return [
        ("trial", trial["name"]),
        (metric_name(sweep), number(trial["value"])),
        *((name, trial["values"].get(name, "-")) for name in sweep["best"][0]["values"]),
        ("steps", str(trial["steps"])),
        ("JCT", _duration(trial["jct_s"])),
        ("energy", joules(trial["energy"])),
    ]


def _decisions(data: RunData) -> dict[str, Any]:
    """Table and chart of the packings, and the verdicts on the run."""
    with charts.settings("report"):
        chart = charts.speeds(data)
    rows, left_out = decision_rows(data.summary)
    svg = inline_svg(chart)
    return {
        "verdicts": verdicts(data.summary),
        "rows": rows,
        "left_out": left_out,
        "svg": svg,
        "caption": chart.caption,
    }


def _idle_caption(summary: dict[str, Any]) -> str:
    if summary["energy"] is not None and summary["idle_power_w"] is None:
        return "while no job worked; the idle power of the device is not known"
    return _share(summary["idle_energy_j"], summary["energy"])


def _share(idle_j: float | None, energy: dict[str, Any] | None) -> str:
    return (
        f"{_percent(idle_j / energy['value_j'])} of it" if idle_j is not None and energy and energy["value_j"] else ""
    )


def _machine(data: RunData) -> list[tuple[str, str]]:
    found = []
    for device in data.summary["devices"]:
        parts = [str(device[name]) for name in ("model", "driver") if device.get(name)]
        if device.get("memory_bytes"):
            parts.append(f"{format_size(device['memory_bytes'])} for jobs")
        if device.get("cores"):
            parts.append(counted(device["cores"], "core"))
        if device.get("power_limit_w"):
            parts.append(f"power limit {device['power_limit_w']:.0f} W")
        found.append((device["name"], ", ".join(parts) or NOT_KNOWN))
    return found + [(word, _known(data.environment.get(name))) for name, word in _MACHINE.items()]


def _opened(data: RunData) -> str:
    at_s = data.environment.get("opened_unix_s")
    return NOT_KNOWN if at_s is None else time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_s))


def _duration(value_s: float | None) -> str:
    return NOT_KNOWN if value_s is None else format_duration(value_s)


def _known(value: Any) -> str:
    return NOT_KNOWN if value is None else str(value)


def _percent(part: float) -> str:
    """A part of 1 in per cent; below 1 it is never rounded up to 100 %."""
    return "100 %" if part >= 1.0 else f"{min(100 * part, 99.9):.3g} %"
