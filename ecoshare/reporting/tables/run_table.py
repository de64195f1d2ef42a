"""Prints the result of a run from its summary: tables of jobs and sweeps, totals and errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.text import Text

from ecoshare.base.device import PROCESSORS
from ecoshare.base.job_spec import partial_words
from ecoshare.base.plural import counted
from ecoshare.jobs.quantities import format_duration, format_energy
from ecoshare.record.results.costs_and_savings import search_energy_j
from ecoshare.record.results.energy_summary import DeviceEnergy, JobEnergy
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.results.run_summary import RunSummary
from ecoshare.record.setting_history import setting_words
from ecoshare.reporting.figures import printable, say, with_steps
from ecoshare.reporting.progress import COLOURS
from ecoshare.reporting.reason_words import listed, percent
from ecoshare.reporting.tables.result_tables import print_services, print_sweep
from ecoshare.reporting.tables.text_table import TableColumn, print_columns

_WHOLE = 0.99
"""Share of the run's time with known joules from which on the run is compared with a baseline."""


UNKNOWN_SAVINGS = "what sharing saved is not known"


def verdicts(summary: RunSummary) -> list[str]:
    """Lines below the totals; a line about which nothing is known is left out."""
    return [line for line in (packed(summary), limits(summary), targets(summary)) if line]


def sharing(summary: RunSummary) -> str:
    """Time and joules that sharing saved or cost against one job after the other, with errors, in a sentence.

    The sentence gives the reason if they are not known. It is empty if fewer than two jobs ran. In a run with services
    it is about their targets: savings are those of iterations.
    """
    if any(job.service is not None for job in summary.jobs):
        return _served(summary)
    if sum(job.attempts > 0 for job in summary.jobs) < 2:
        return ""
    if reasons := unknown_savings(summary):
        return f"{UNKNOWN_SAVINGS}: {'; '.join(reasons)}"
    time, energy = _changes(summary)
    parts, alone = [], []
    if time is not None:
        parts.append((time.verb, time.words(format_duration)))
        starts_s = summary.baseline.exclusive_starts_s
        alone.append(
            format_duration(time.alone) + (f" ({format_duration(starts_s)} of it to start)" if starts_s else "")
        )
    if energy is not None:
        parts.append((energy.verb, energy.words(format_energy)))
        alone.append(format_energy(energy.alone))
    told = [words if place and verb == parts[0][0] else f"{verb} {words}" for place, (verb, words) in enumerate(parts)]
    source = f" (joules {summary.energy.source})" if energy is not None and summary.energy is not None else ""
    each = " on each device" if len(summary.devices) > 1 else ""
    takes = f"one after the other{each} takes {' and '.join(alone)}"
    left_out = [
        words
        for value_s, words in (
            (summary.away_s, "the time of other runs"),
            (summary.down_s, "the time between sessions"),
        )
        if value_s
    ]
    own = f", without {' and '.join(left_out)}" if left_out else ""
    return f"sharing {' and '.join(told)}: {takes}{own}{source}"


def unknown_savings(summary: RunSummary) -> list[str]:
    """Reasons why `sharing` states no saving of jobs that shared a device; empty if it states one."""
    baseline = summary.baseline
    if any(job.service is not None for job in summary.jobs) or sum(job.attempts > 0 for job in summary.jobs) < 2:
        return []
    if baseline.unknown:
        return list(baseline.unknown)
    if any(each is not None for each in _changes(summary)):
        return []
    has_alone = baseline.exclusive_energy_j or baseline.exclusive_makespan_s
    return ["too little of the run's energy is known" if has_alone else "the jobs did nothing that could be compared"]


def _changes(summary: RunSummary) -> tuple[_Change | None, _Change | None]:
    """Time and joules, against one job after the other."""
    baseline = summary.baseline
    apart_s = (summary.away_s or 0.0) + (summary.down_s or 0.0)
    own_s = None if summary.makespan_s is None else summary.makespan_s - apart_s
    time = _change(own_s, None, baseline.exclusive_makespan_s, baseline.exclusive_makespan_error_s)
    energy_error_j = None if summary.energy is None else summary.energy.standard_error_j
    alone_j, alone_error_j = baseline.exclusive_energy_j, baseline.exclusive_energy_error_j
    return time, _change(_energy_j(summary), energy_error_j, alone_j, alone_error_j)


def _served(summary: RunSummary) -> str:
    """Whether services kept their targets; one service with its latency."""
    services = [(job.name, job.service) for job in summary.jobs if job.service is not None]
    told = [(name, each, each.p99_s) for name, each in services if each.p99_s is not None]
    if not told:
        return f"{listed([name for name, _ in services])} answered no request"
    if len(services) == 1:
        ((name, each, p99_s),) = told
        in_time = f"{each.answered - each.late} of {counted(each.arrived, 'request')} in time"
        return f"{name} answered {in_time}: p99 {format_duration(p99_s)}, target {format_duration(each.target_s)}"
    met = sum(each.met is True for _, each in services)
    silent = len(services) - len(told)
    return f"{met} of {counted(len(services), 'service')} kept their targets" + (
        f", and {silent} had no requests" if silent else ""
    )


@dataclass(frozen=True, slots=True)
class _Change:
    """A quantity of the run, compared with the same work done one job after the other.

    Attributes:
        saved: `alone` minus the quantity of the run; negative if the run took more.
        error: Standard error of `saved`.
        alone: Quantity of the same work, one job after the other.
    """

    saved: float
    error: float
    alone: float

    @property
    def verb(self) -> str:
        if abs(self.saved) <= self.error:
            return "neither saved nor cost more than the error:"
        return "saved" if self.saved > 0.0 else "cost"

    def words(self, shown: Callable[[float], str]) -> str:
        return (
            f"{shown(abs(self.saved))} ({percent(abs(self.saved) / self.alone)} ± {percent(self.error / self.alone)})"
        )


def _change(here: float | None, here_error: float | None, alone: float | None, error: float | None) -> _Change | None:
    if here is None or not alone:
        return None
    return _Change(alone - here, math.hypot(error or 0.0, here_error or 0.0), alone)


def packed(summary: RunSummary) -> str:
    """Joules against the same packings at the default setting; empty if these are not known or nothing was set."""
    baseline = summary.baseline
    spent_j, default_j = _energy_j(summary), baseline.packed_default_energy_j
    in_force = [each for each in summary.settings if each.error is None]
    if spent_j is None or not default_j or not in_force:
        return ""
    words = f"packed as it was at the default setting, {baseline.source}: {format_energy(default_j)}"
    return f"{words} ({_less(spent_j, default_j)})"


def limits(summary: RunSummary) -> str:
    """Number of slowdown limits that were kept and broken, and by how much; empty if no job has one."""
    limited = [job for job in summary.jobs if job.slowdown_limit is not None]
    if not limited:
        return ""
    kept = sum(job.slowdown_limit_met is True for job in limited)
    unknown = sum(job.slowdown_limit_met is None for job in limited)
    parts = [f"{kept} of {len(limited)} kept"] + ([f"{unknown} not known"] if unknown else [])
    broken = [_broken(job) for job in limited if job.slowdown_limit_met is False]
    words = f"limits: {', '.join(parts)}" + (f"; broken: {listed(broken)}" if broken else "")
    budget = summary.power_budget
    return words + ("; the power budget goes before them" if broken and budget and budget.sets_limits else "")


def targets(summary: RunSummary) -> str:
    """Services that missed their targets for whole minutes, and for how many; empty if there are none."""
    missed = [(job.name, job.service) for job in summary.jobs if job.service is not None and job.service.missed_minutes]
    words = [
        f"{name} for {counted(each.missed_minutes, 'minute')} (p99 within {format_duration(each.target_s)})"
        for name, each in missed
    ]
    return f"targets missed: {listed(words)}" if words else ""


def _broken(job: JobSummary) -> str:
    assert job.slowdown is not None and job.slowdown_limit is not None, "a broken limit was measured"
    over = job.slowdown / job.slowdown_limit - 1.0
    return f"{job.name} was {job.slowdown:.2f} times slower, {percent(over)} over its {job.slowdown_limit:g}"


def _energy_j(summary: RunSummary) -> float | None:
    """Energy (J) of the run; None if less than `_WHOLE` of its time is covered."""
    energy = summary.energy
    return energy.value_j if energy is not None and energy.covered >= _WHOLE else None


def _less(value: float, than: float) -> str:
    saved = 1.0 - value / than
    return f"{percent(abs(saved))} {'less' if saved >= 0.0 else 'more'} here"


_MOST_ERRORS = 10

_CONTEXTS_W = 5.0
"""Power (W) of contexts from which on it is told."""

_SHORT_S = 0.01
"""Time (s) of an iteration below which the operations of a small model are too short for several threads."""

_FEWEST_JOBS, _FEWEST_ITERATIONS = 4, 20
"""Fewest jobs, each with so many iterations, for advice about all."""

_LESSER = {"queued": 3, "iterations": 2, "slowdown": 1}
"""Columns that a narrow terminal drops, the largest number first. summary.json has all of them."""


def print_summary(summary: RunSummary, console: Console, with_meter: bool = True) -> None:
    """Print jobs, sweeps, totals, settings, errors and the run folder.

    Args:
        with_meter: Whether the totals say what gave the joules.
    """
    own = [job for job in summary.jobs if job.sweep is None]
    if own:
        _print_jobs(own, console, len(summary.devices) > 1)
        console.print()
    if any(job.service is not None for job in own):
        print_services(own, console)
        console.print()
    for sweep in summary.sweeps:
        print_sweep(sweep, console)
        console.print()
    if answer := sharing(summary):
        say(console, printable(answer, console.encoding), "bold")
    say(console, totals(summary, with_meter))
    for line in devices(summary):
        say(console, line)
    if others := away(summary):
        say(console, others)
    if summary.windows:
        say(console, measured(summary))
    if tried := settings_tried(summary):
        say(console, tried)
    for line in verdicts(summary):
        say(console, line)
    for line in kept_lanes(summary)[:_MOST_ERRORS]:
        say(console, printable(line, console.encoding))
    for line in partial_words({job.name: job.job_class for job in summary.jobs}):
        say(console, printable(line, console.encoding))
    if unseen := by_time(summary):
        say(console, printable(unseen, console.encoding))
    if beside := beside_the_gpu(summary):
        say(console, printable(beside, console.encoding), "yellow")
    if parts := in_parts(summary):
        say(console, parts)
    if moved := parked(summary):
        say(console, printable(moved, console.encoding))
    if summary.power_budget is not None:
        say(console, summary.power_budget.words)
    for each in summary.settings[:_MOST_ERRORS]:
        say(console, f"set: {setting_words(each)}")
    failed = [job for job in summary.jobs if job.error and job.state != "pruned"]
    for job in failed[:_MOST_ERRORS]:
        say(console, Text.assemble((job.name, "red"), f": {job.error}"))
    if len(failed) > _MOST_ERRORS:
        console.print(f"… and {len(failed) - _MOST_ERRORS} more; see summary.json")
    say(console, f"run folder: {summary.run}")


def _print_jobs(jobs: Sequence[JobSummary], console: Console, with_devices: bool) -> None:
    sources = {job.energy.source for job in jobs if job.energy is not None}
    source = f",\n{sources.pop()}" if len(sources) == 1 else ""
    cells = {
        "JCT": [_duration(job.jct_s) for job in jobs],
        "queued": [_duration(job.queue_s) for job in jobs],
        "slowdown": ["-" if job.slowdown is None else f"{job.slowdown:.2f}" for job in jobs],
        "iterations": [iterations(job) for job in jobs],
        f"energy{source}": [_joules(job.energy) if source else energy(job.energy) for job in jobs],
    }
    states = [Text(job.state, style=COLOURS.get(job.state, "")) for job in jobs]
    columns = [
        TableColumn(Text("job"), [Text(job.name) for job in jobs], is_name=True),
        TableColumn(Text("state"), states),
        *([TableColumn(Text("device"), [Text(",".join(job.devices)) for job in jobs])] if with_devices else []),
        *(
            TableColumn(Text(heading), list(map(Text, written)), right=True, lesser=_LESSER.get(heading, 0))
            for heading, written in cells.items()
        ),
    ]
    print_columns(columns, console)


def in_parts(summary: RunSummary) -> str:
    """Advice to cut the processors into parts, if iterations are too short for several threads; else empty."""
    device = summary.devices[0] if len(summary.devices) == 1 else None
    times_s = [
        max(0.0, job.held_s - (job.preparation_s or 0.0)) / job.iterations
        for job in summary.jobs
        if job.held_s is not None and job.iterations >= _FEWEST_ITERATIONS
    ]
    if device is None or device.name != PROCESSORS or device.cores < 2 or len(times_s) < _FEWEST_JOBS:
        return ""
    if (iteration_s := median(times_s)) > _SHORT_S:
        return ""
    parts = min(device.cores, len(times_s))
    return (
        f"iterations of {format_duration(iteration_s)} gain little from several threads: `--device cpu/{parts}` runs "
        f"{parts} jobs at once, each with its part of the processors (last digits of results may differ)"
    )


def totals(summary: RunSummary, with_meter: bool = True) -> str:
    """Makespan, mean JCT and energy in one line, and what gave the joules."""
    jobs = len(summary.jobs)
    completed = sum(job.state == "completed" for job in summary.jobs)
    parts = [] if summary.makespan_s is None else [f"makespan {format_duration(summary.makespan_s)}"]
    if completed == 0:
        parts.append("no job completed")
    else:
        of = "" if completed == jobs else f" of {counted(completed, 'completed job')}"
        parts.append(f"mean JCT {_duration(summary.mean_jct_s)}{of}")
    if summary.energy is not None:
        idle = format_energy(summary.idle_energy_j or 0.0)
        if summary.idle_power_w is None:
            idle += " (the draw at rest is not known: the jobs' part has it)"
        elif summary.empty_power_w is not None and summary.idle_power_w - summary.empty_power_w >= _CONTEXTS_W:
            idle += f" ({summary.empty_power_w:.0f} W before the first job, {summary.idle_power_w:.0f} W with contexts)"
        meter = f" ({summary.energy.about}; told once, `ecoshare doctor` tells it again)" if with_meter else ""
        parts.append(f"energy {energy(summary.energy)} of which idle {idle}{meter}")
    else:
        parts.append("energy not known")
    return ", ".join(parts)


def devices(summary: RunSummary) -> list[str]:
    """Jobs, energy and idle part of each device, one line each; empty for one device: the totals are its own."""
    if len(summary.devices) == 1:
        return []
    lines = []
    for each in summary.devices:
        jobs = sum(each.name in job.devices for job in summary.jobs)
        joules = "energy not known"
        if each.energy is not None:
            joules = f"energy {energy(each.energy)} of which idle {format_energy(each.idle_energy_j or 0.0)}"
        failed = "" if each.failed is None else f", {each.failed.in_words}"
        lines.append(f"{each.name}: {counted(jobs, 'job')}, {joules}{failed}")
    return lines


def measured(summary: RunSummary) -> str:
    """Cost of measuring new classes, in one line. The run must have at least one window."""
    made = [window for window in summary.windows if window.error is None]
    missed = len(summary.windows) - len(made)
    failed = f"{counted(missed, 'window')} came to nothing"
    if not made:
        return f"no new class was measured: {failed}"
    known = [window.lost_s for window in made if window.lost_s is not None]
    spent = search_energy_j(summary.windows)
    source = summary.energy.source if summary.energy is not None else ""
    costs = [format_duration(sum(known))] if known else []
    costs += [f"{format_energy(spent)} {source}"] if spent is not None and source else []
    words = f"measured {counted(len(made), 'new class', 'new classes')}"
    words += (
        f", which cost {' and '.join(costs)} beyond the work done meanwhile" if costs else "; the cost is not known"
    )
    return f"{words}; {failed}" if missed else words


def settings_tried(summary: RunSummary) -> str:
    """Number of settings that were measured, and their cost, in one line; empty if there were none.

    Limits that keep a power budget are no such settings.
    """
    if summary.power_budget is not None and summary.power_budget.sets_limits:
        return ""
    searched = [each for each in summary.packings if each.settings_tried]
    if not searched:
        return ""
    count = sum(each.settings_tried for each in searched)
    whole_j, windows_j = summary.search_energy_j, search_energy_j(summary.windows)
    cost = ""
    if whole_j is not None and summary.energy is not None:
        cost = f", which cost {format_energy(whole_j - (windows_j or 0.0))} {summary.energy.source} beyond the work"
    return f"tried {counted(count, 'setting')} of {counted(len(searched), 'packing')}{cost}"


def away(summary: RunSummary) -> str:
    """Time for which other runs had the devices, in one line; empty if none shared them."""
    if summary.away_s is None:
        return ""
    whole = "" if summary.makespan_s is None else f" of {format_duration(summary.makespan_s)}"
    return f"other runs of this machine had the devices for {format_duration(summary.away_s)}{whole}"


def kept_lanes(summary: RunSummary) -> list[str]:
    """Lines about the jobs that kept their lanes to their ends, one for each reason."""
    names: dict[tuple[str, bool], list[str]] = {}
    for job in summary.jobs:
        if job.keeps_lane:
            names.setdefault((job.keeps_lane, job.iterations > 0), []).append(job.name)
    return [
        f"{listed(jobs)} kept {'its lane to its end' if len(jobs) == 1 else 'their lanes to their ends'}: {why}"
        + ("" if are_seen else "; iterations of child processes are not seen")
        for (why, are_seen), jobs in names.items()
    ]


def by_time(summary: RunSummary) -> str:
    """Jobs that shared by time, in one line; empty if there is none."""
    jobs = [job.name for job in summary.jobs if job.by_time]
    if not jobs:
        return ""
    return (
        f"{listed(jobs)} shared by time: no iterations were seen; `ecoshare.iteration()` at the end of each counts them"
    )


def beside_the_gpu(summary: RunSummary) -> str:
    """Jobs that never used their GPU, in one line; empty if there is none."""
    jobs = [job.name for job in summary.jobs if job.is_beside_its_gpu]
    if not jobs:
        return ""
    return (
        f"{listed(jobs)} never used the GPU and did all work on the processors, of which the joules are not known "
        "(does the script choose a device?)"
    )


def parked(summary: RunSummary) -> str:
    """Jobs that were parked and for how long, in one line; empty if none was."""
    jobs = [job for job in summary.jobs if job.parks]
    told = [f"{job.name} {counted(job.parks, 'time')} for {format_duration(job.parked_s)}" for job in jobs]
    return f"parked for other jobs: {listed(told)}" if told else ""


def energy(value: DeviceEnergy | JobEnergy | None) -> str:
    """Joules with their source, such as `measured`; `-` if they are not known."""
    return _joules(value) if value is None else f"{_joules(value)} {value.source}"


def _joules(value: DeviceEnergy | JobEnergy | None) -> str:
    """Joules without their source, for a column with the source in its heading."""
    return "-" if value is None else format_energy(value.value_j)


def iterations(job: JobSummary) -> str:
    """Number of training iterations, followed by that of evaluation iterations. Those of child processes are unseen."""
    if job.by_time or (job.keeps_lane and not job.iterations and not job.eval_iterations):
        return "not seen"
    evaluated = f" +{job.eval_iterations} eval" if job.eval_iterations else ""
    return with_steps(str(job.iterations), job.by_steps) + evaluated


def _duration(value_s: float | None) -> str:
    return "-" if value_s is None else format_duration(value_s)
