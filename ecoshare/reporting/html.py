"""A run as one HTML file that opens anywhere, offline, and asks nobody for anything: its policy forbids it.

What is not known is said to be not known, and no joules stand without the word that tells how they are known.
"""

from __future__ import annotations

import time
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from ecoshare.counted import counted
from ecoshare.jobs.quantities import format_duration, format_energy, format_size
from ecoshare.measure.meter import ATTRIBUTED, MEASURED
from ecoshare.reporting import charts
from ecoshare.reporting.charts.svg import inline_svg
from ecoshare.reporting.reason_words import listed
from ecoshare.reporting.rundata import RunData
from ecoshare.reporting.settings import setting_words, values_words
from ecoshare.reporting.sweep_table import metric_name
from ecoshare.reporting.sweep_table import words as sweep_words
from ecoshare.reporting.sweeps import ranked
from ecoshare.reporting.units import number, share, short_class
from ecoshare.reporting.verdicts import verdicts

NOT_KNOWN, NONE = "not known", "-"
_STATES = ("completed", "pruned", "failed", "cancelled", "running", "queued", "arriving")
_MOST_TRIALS = 100
"""Of all sweeps, in the table of all jobs: the best, then those that failed."""
_MACHINE = {
    "ecoshare": "ecoshare",
    "torch": "torch",
    "python": "Python",
    "platform": "system",
    "intra_op_threads": "threads of an operation",
    "mps": "MPS",
}
"""What of environment.json is shown. It also holds what is nobody's business."""


def html(data: RunData) -> str:
    """The report."""
    shown = []
    for chart in _charts(data):
        shown.append({"key": chart.key, "title": chart.title, "caption": chart.caption, "svg": inline_svg(chart)})
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((files("ecoshare.reporting") / "report.html.j2").read_text(encoding="utf-8"))
    summary = data.summary
    shown_jobs = _shown(summary)
    return template.render(
        summary=summary,
        opened=_opened(data),
        energy_words=energy_words(data),
        figures=_figures(summary),
        charts=shown,
        columns=list(_row(summary["jobs"][0])) if summary["jobs"] else [],
        rows=[_row(job) for job in shown_jobs],
        left_out=len(summary["jobs"]) - len(shown_jobs),
        errors=[(job["name"], job["error"]) for job in shown_jobs if job["error"] and job["state"] != "pruned"],
        sweeps=_sweeps(data),
        settings=[setting_words(each) for each in summary["settings"]],
        decisions=_decisions(data),
        machine=_machine(data),
        not_known=NOT_KNOWN,
    )


def energy_words(data: RunData) -> list[str]:
    """What the joules of a report are, in sentences: their source, their meter, their resolution, their gaps."""
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
        ("energy", _energy(energy), ""),
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
    """All jobs, and of the trials as many as anybody reads."""
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


def _sweeps(data: RunData) -> list[dict[str, Any]]:
    """Each sweep in words, as a table of its best trials, and drawn."""
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
    """Its cells with their columns: names of the user's may be those of ours."""
    return [
        ("trial", trial["name"]),
        (metric_name(sweep), number(trial["value"])),
        *((name, trial["values"].get(name, "-")) for name in sweep["best"][0]["values"]),
        ("steps", str(trial["steps"])),
        ("JCT", _duration(trial["jct_s"])),
        ("energy", _energy(trial["energy"])),
    ]


def _decisions(data: RunData) -> dict[str, Any]:
    """The packings as a table with a chart, and what they came to."""
    with charts.settings("report"):
        chart = charts.speeds(data)
    rows = [_packing(each, data.summary) for each in data.summary["packings"]]
    svg = inline_svg(chart)
    return {"verdicts": verdicts(data.summary), "rows": rows, "svg": svg, "caption": chart.caption}


def _packing(each: dict[str, Any], summary: dict[str, Any]) -> dict[str, str]:
    """A packing's cells by column; `-` where there was nothing to foresee, to measure or to try."""
    names = [name for lane in each["classes"] for name in lane]
    predicted, measured = each["predicted"] or {}, each["measured"] or {}
    is_alone = len(names) == 1
    source = summary["energy"]["source"] if summary["energy"] is not None else ""
    energy = NOT_KNOWN if each["energy_j"] is None else f"{format_energy(each['energy_j'])} {source}"
    ratio = each["energy_ratio"]
    return {
        "packing": " | ".join(" + ".join(map(short_class, lane)) for lane in each["classes"]),
        "jobs": listed(each["jobs"]),
        "ran for": _duration(each["duration_s"]),
        "energy": energy,
        "speeds expected": NONE if is_alone else _speeds(names, predicted.get("speeds", {})),
        "measured": NONE if is_alone else _speeds(names, measured.get("speeds", {})),
        "power expected": _watts(predicted.get("power_w")),
        "power measured": _watts(measured.get("power_w")),
        "settings tried": str(each["settings_tried"]) if each["settings_tried"] else NONE,
        "setting": NONE if each["setting"] is None else values_words(each["setting"]) or "the default",
        "energy there": NONE if ratio is None else f"{share(ratio)} of that at the default",
        "verdict": each["verdict"] or NONE,
    }


def _speeds(names: list[str], speeds: dict[str, float]) -> str:
    known = [f"{speeds[name]:.2f}" for name in names if name in speeds]
    return ", ".join(known) if known else NONE


def _watts(power_w: float | None) -> str:
    return NONE if power_w is None else f"{number(power_w)} W"


def _idle_caption(summary: dict[str, Any]) -> str:
    if summary["energy"] is not None and summary["idle_power_w"] is None:
        return "while nobody worked; what the device draws at rest is not known"
    return _share(summary["idle_energy_j"], summary["energy"])


def _share(idle_j: float | None, energy: dict[str, Any] | None) -> str:
    return (
        f"{_percent(idle_j / energy['value_j'])} of it" if idle_j is not None and energy and energy["value_j"] else ""
    )


def _row(job: dict[str, Any]) -> dict[str, str]:
    """A job's cells by column."""
    per_iteration_j = job["energy_per_iteration_j"]
    source = job["energy"]["source"] if job["energy"] is not None else ""
    return {
        "job": job["name"],
        "class": job["class"],
        "state": job["state"],
        "exit code": _known(job["exit_code"]),
        "attempts": _known(job["attempts"]),
        "lanes": ", ".join(map(str, job["lanes"])) or "none",
        "iterations": _known(job["iterations"]),
        "of evaluation": _known(job["eval_iterations"]),
        "arrival": _duration(job["arrival_s"]),
        "start": _duration(job["start_s"]),
        "finish": _duration(job["finish_s"]),
        "JCT": _duration(job["jct_s"]),
        "queued": _duration(job["queue_s"]),
        "slowdown": _ratio(job["slowdown"]),
        "slowdown limit": {None: "none, or " + NOT_KNOWN, True: "kept", False: "broken"}[job["slowdown_limit_met"]],
        "interference": _ratio(job["interference"]),
        "stretch": _ratio(job["stretch"]),
        "held the turn": _duration(job["held_s"]),
        "hand-overs": _known(job["handovers"]),
        "longest wait": _duration(job["longest_wait_s"]),
        "peak memory": NOT_KNOWN if job["peak_memory_bytes"] is None else format_size(job["peak_memory_bytes"]),
        "energy": _energy(job["energy"]),
        "per iteration": NOT_KNOWN if per_iteration_j is None else f"{format_energy(per_iteration_j)} {source}",
    }


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


def _energy(value: dict[str, Any] | None) -> str:
    if value is None:
        return NOT_KNOWN
    error_j = value["standard_error_j"]
    error = f" ± {format_energy(error_j)}" if error_j else ""
    return f"{format_energy(value['value_j'])}{error} {value['source']}"


def _duration(value_s: float | None) -> str:
    return NOT_KNOWN if value_s is None else format_duration(value_s)


def _ratio(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:.2f}"


def _known(value: Any) -> str:
    return NOT_KNOWN if value is None else str(value)


def _percent(part: float) -> str:
    """A part in per cent, never rounded up to the whole."""
    return "100 %" if part >= 1.0 else f"{min(100 * part, 99.9):.3g} %"
