"""`ecoshare explain`: the decisions of a run in words, or as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rich.console import Console

from ecoshare.base.measurement import AS_FOUND, phase_words
from ecoshare.base.plural import counted
from ecoshare.core.reasons import Doing
from ecoshare.errors import UsageError
from ecoshare.jobs.quantities import format_duration, number
from ecoshare.record.accounts.turn_account import Spent
from ecoshare.record.packing_timeline import PackingFinding, PackingPeriod
from ecoshare.record.results.costs_and_savings import ratios
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.results.run_summary import RunSummary
from ecoshare.record.run_data import read
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.setting_history import values_words
from ecoshare.reporting.explanation import RunExplanation, explain
from ecoshare.reporting.figures import Writer, short_class
from ecoshare.reporting.reason_words import ReasonInterval, Story, listed, percent, reason_words, speeds
from ecoshare.reporting.tables.run_table import away

_SPENT = {
    Spent.QUEUED: "in the queue",
    Spent.STARTS: "to start",
    Spent.ALONE: "alone",
    Spent.BESIDE: "beside {others}",
    Spent.WAITS: "waiting for its turn{behind}",
    Spent.AWAY: "away by itself",
    Spent.PARKED: "parked",
    Spent.ENDS: "to end",
}
_IDLE = "without requests"
"""Words for the time that a service is away."""

_HAS_TURNS = frozenset({Doing.ALONE, Doing.MEASURED, Doing.SHARES})
_HAS_NONE = frozenset({Doing.WAITS, Doing.BEHIND, Doing.BLOCKED, Doing.PAUSED, Doing.PARKED})

_LEAST_S = 0.05
"""Shortest part (s) of a job's time that is told."""

_NAMED = 0.05
"""Part of such a part for which another job had the turn, above which that job is named."""

_CONTRADICTS = 0.1
"""Part of an interval from which turns that do not fit the decision are told."""

_WORTH_A_WORD_S = 1.0
_MOST_LINES = 200

Lines = Iterator[tuple[float, str, str]]
"""Time (s), time in words, and event or state in words."""


def show(run: Path, job: str | None, as_json: bool) -> None:
    """Print why jobs of a run waited, shared a device or ran alone.

    Args:
        run: Path of the run folder.
        job: Name of one job to print; None for all jobs.
        as_json: Whether to print one JSON object instead of lines.

    Raises:
        UsageError: If there is no such run or job, if `job` is a sweep, or if the log is damaged.
    """
    summary, explained = _explained(run, job)
    if as_json:
        print(json.dumps(as_dict(explained, summary, job), indent=2))
        return
    writer = Writer(Console(highlight=False))
    for line in of_job(explained, summary, job) if job is not None else of_run(explained, summary):
        writer.line(line)


def lines_of(run: Path, job: str) -> list[str]:
    """Lines that `show` prints about one job.

    Raises:
        UsageError: See `show`.
    """
    summary, explained = _explained(run, job)
    return list(of_job(explained, summary, job))


def _explained(run: Path, job: str | None) -> tuple[RunSummary, RunExplanation]:
    folder = RunFolder.open(run)
    data = read(folder, packings=False)  # the explanation asks for them itself
    summary = data.summary
    known = [each.name for each in summary.jobs]
    if job in {sweep.name for sweep in summary.sweeps}:
        trials = [each.name for each in summary.jobs if each.sweep == job]
        raise UsageError(f"{job} is a sweep; name one of its trials", listed(trials))
    if job is not None and job not in known:
        raise UsageError(f"{run} has no job {job!r}", _remedy(job, known))
    explained = explain(data.history, job)
    explained.account = data.account
    return summary, explained


def _remedy(job: str, known: list[str]) -> str:
    close = get_close_matches(job, known, 1)
    return f"did you mean {close[0]!r}?" if close else f"its jobs are {listed(known)}"


def of_run(explained: RunExplanation, summary: RunSummary) -> Iterator[str]:
    """Lines about a run: packings of each device in order of time, then a few lines for each job."""
    yield f"{summary.run}: {summary.state}, objective {summary.objective}, policy {summary.policy}"
    if others := away(summary):
        yield others
    for device in summary.devices:
        yield from ("", device.name)
        lines = sorted(_of_device(explained, device.name))
        if (failed := device.failed) is not None:
            lines.append((failed.at_s, _clock(failed.at_s), f"{device.name} failed: {failed.reason}"))
        yield from _columns(lines[:_MOST_LINES])
        if len(lines) > _MOST_LINES:
            yield f"  … and {len(lines) - _MOST_LINES} more; --json has all"
    for sweep in summary.sweeps:
        first = next((job.name for job in summary.jobs if job.sweep == sweep.name), None)
        if first is not None:
            yield from ("", f"{sweep.name}: its trials one by one with `ecoshare explain {summary.run} {first}`")
    for job in summary.jobs:
        if job.sweep is not None:
            continue
        yield from ("", *_heading(job, explained))
        if (story := explained.stories.get(job.name)) is not None:
            yield from _longest(story, explained)
    yield from _ending(explained)


def of_job(explained: RunExplanation, summary: RunSummary, name: str) -> Iterator[str]:
    """Lines about one job: everything that happened to it, in order of time."""
    job = next(each for each in summary.jobs if each.name == name)
    yield from _heading(job, explained)
    if (story := explained.stories.get(name)) is not None:
        lines = [(at_s, 0, span, words) for at_s, span, words in _intervals(story, explained)]
        lines += [(at_s, 1, _clock(at_s), words) for at_s, words in _measured(explained, name)]
        lines += [(at_s, 2, _clock(at_s), words) for at_s, words in story.remarks]
        yield from _columns([(at_s, span, words) for at_s, _, span, words in sorted(lines)])
    yield from _ending(explained)


def _heading(job: JobSummary, explained: RunExplanation) -> Iterator[str]:
    after = "" if job.jct_s is None else f", {format_duration(job.jct_s)} after it came"
    yield f"{job.name} (class {short_class(job.job_class)}): {job.state}{after}"
    story = explained.stories.get(job.name)
    if story is None:
        yield "  nothing was decided about it yet"
        return
    parts = [parts] if (parts := _spent(job, explained)) else []
    if (service := job.service) is not None and service.arrived:
        p99 = "no answer" if service.p99_s is None else f"p99 {format_duration(service.p99_s)}"
        in_time = f"{service.answered - service.late} of {counted(service.arrived, 'request')} in time"
        parts.append(f"answered {in_time}: {p99}, target {format_duration(service.target_s)}")
    limit, slower = job.slowdown_limit, job.slowdown
    if job.keeps_lane:
        parts.append(f"kept its lane to its end: {job.keeps_lane}")
    if job.by_time:
        parts.append("shared by time, since no iterations were seen")
    if limit is not None:
        parts.append(f"its slowdown was {'not measured' if slower is None else f'{slower:.2f}'}, limit {limit:g}")
    if parts:
        yield f"  {'; '.join(parts)}"


def _spent(job: JobSummary, explained: RunExplanation) -> str:
    """Parts of the time of a job; they add up to its JCT."""
    if explained.account is None:
        return ""
    told = []
    for spent, words in _SPENT.items():
        if (value_s := job.spent_s.get(spent.value, 0.0)) < _LEAST_S:
            continue
        if spent is Spent.AWAY and job.service is not None:
            words = _IDLE
        if spent in (Spent.BESIDE, Spent.WAITS):
            held = explained.account.holders(job.name, spent)
            others = listed([name for name, held_s in held.items() if held_s > _NAMED * value_s])
            words = words.format(others=others or "others", behind=f" behind {others}" if others else "")
        told.append(f"{format_duration(value_s)} {words}")
    return " + ".join(told)


def _longest(story: Story, explained: RunExplanation) -> Iterator[str]:
    """Reasons for which the job waited, ran behind others, had no turn and ran alone for the longest time."""
    for doing in (Doing.WAITS, Doing.PARKED, Doing.BEHIND, Doing.BLOCKED, Doing.ALONE):
        longest = story.longest(doing, explained.end_s)
        if longest is not None and (length_s := longest.length_s(explained.end_s)) >= _WORTH_A_WORD_S:
            yield f"  {format_duration(length_s)} {_interval_words(story.name, longest, explained)}"


def _intervals(story: Story, explained: RunExplanation) -> Lines:
    for each in story.intervals:
        yield each.from_s, _span(each.from_s, each.to_s), _interval_words(story.name, each, explained)


def _interval_words(job: str, interval: ReasonInterval, explained: RunExplanation) -> str:
    """State and reason, and the turns that the job really had if they do not fit to that."""
    words = reason_words(job, interval.reason, explained.policy, explained.services)
    to_s = explained.end_s if interval.to_s is None else interval.to_s
    length_s, doing = to_s - interval.from_s, interval.reason.doing
    if explained.account is None or length_s < _WORTH_A_WORD_S or job in explained.services:
        return words
    spent = explained.account.between(job, interval.from_s, to_s)
    held_s = spent[Spent.ALONE] + spent[Spent.BESIDE]
    lacks = spent[Spent.WAITS] + (0.0 if doing is Doing.SHARES else spent[Spent.BESIDE])
    limit_s = (1.0 - _CONTRADICTS if doing is Doing.SHARES else _CONTRADICTS) * length_s
    if not (doing in _HAS_TURNS and lacks > limit_s) and not (doing in _HAS_NONE and held_s > limit_s):
        return words
    others = explained.account.holders(job, Spent.WAITS, Spent.BESIDE, from_s=interval.from_s, to_s=to_s)
    told = [f"{name} had it for {format_duration(value_s)}" for name, value_s in others.items() if value_s >= _LEAST_S]
    had = f"{job} had the turn for {format_duration(held_s)}" if held_s >= _LEAST_S else f"{job} never had the turn"
    return f"{words}; {listed([had, *told])}"


def _measured(explained: RunExplanation, job: str) -> Iterator[tuple[float, str]]:
    """Time and words of the measured speeds of the job's packings, and of the settings at which it ran."""
    before: PackingPeriod | None = None
    for stretch in explained.timeline.stretches:
        if job not in stretch.classes:
            continue
        names = [job, *(name for name in stretch.jobs if name != job)]
        for finding in stretch.findings(explained.timeline.solos):
            if words := _finding(finding, names):
                yield finding.at_s, words
        has_come = before is None or before.to_s is None or stretch.from_s - before.to_s > _WORTH_A_WORD_S
        if has_come and (setting := stretch.settings[0][1]) != AS_FOUND:
            yield stretch.from_s, f"at the setting {values_words(dict(setting))}"
        yield from _settings(stretch, explained)
        before = stretch


def _finding(finding: PackingFinding, names: list[str]) -> str:
    """Measured speeds, such as `measured 0.71 and 0.64 of their speeds alone, expected 0.93 and 0.88: parted`."""
    known = [name for name in names if name in finding.speeds]
    if len(names) < 2 or not known:
        return ""
    measured = "" if len(known) == len(names) else f"{listed(known)} at "
    words = f"measured {measured}{speeds([finding.speeds[name] for name in known])} of their speeds alone"
    if expected := [finding.expected[name] for name in known if name in finding.expected]:
        words += f", expected {speeds(expected)}"
    if finding.power_w is not None:
        before = "" if finding.expected_w is None else f", expected {number(finding.expected_w)} W"
        words += f"; {number(finding.power_w)} W{before}"
    return f"{words}: {'kept' if finding.kept else 'parted'}"


def _settings(stretch: PackingPeriod, explained: RunExplanation) -> Iterator[tuple[float, str]]:
    """Time and words of settings that changed while the packing ran, and of the result of a search."""
    for at_s, setting in stretch.settings[1:]:
        yield at_s, f"set: {values_words(dict(setting))}" if setting else "set: back to the default"
    if stretch.searched is None:
        return
    at_s, best, note = stretch.searched
    tried = len({found.setting for _, found in stretch.measurements if found.setting != AS_FOUND})
    ratio = ratios(explained.timeline).get((stretch.packing, best))
    saves = f", with {percent(1.0 - ratio)} fewer joules for the work" if best and ratio is not None else ""
    found = values_words(dict(best)) or "none was better than the default"
    words = f"searched: of {counted(tried, 'setting')} {found}"
    yield at_s, f"{words}{' is best' if best else ''}{saves}" + (f" ({note})" if note else "")


def _of_device(explained: RunExplanation, device: str) -> Lines:
    for stretch in explained.timeline.stretches:
        if stretch.device == device and not stretch.is_passing():
            yield stretch.from_s, _span(stretch.from_s, stretch.to_s), _packing(stretch, explained)
            for at_s, words in _settings(stretch, explained):
                yield at_s, _clock(at_s), words
    for window in explained.windows:
        if window.device == device:
            yield window.from_s, _span(window.from_s, window.to_s), f"{window.job} measured alone"


def _packing(stretch: PackingPeriod, explained: RunExplanation) -> str:
    """Jobs of a packing, and the turns that do not fit to it."""
    words, account = _packed(stretch, explained), explained.account
    if evaluated := [name for name, of in stretch.classes.items() if phase_words(of)]:
        words += f", {listed(evaluated)} evaluating" if len(evaluated) < len(stretch.jobs) else ", evaluating"
    to_s = explained.end_s if stretch.to_s is None else stretch.to_s
    if account is None:
        return words
    length_s = to_s - stretch.from_s
    had = account.holding(stretch.device, stretch.from_s, to_s)
    unmeant = {name: value_s for name, value_s in had.items() if name not in stretch.jobs}
    told = [name for name, value_s in unmeant.items() if value_s > _CONTRADICTS * length_s]
    parts = [f"{name} had the turn for {format_duration(unmeant[name])}" for name in told]
    workers = [name for name in stretch.jobs if name not in explained.services]
    parts += [f"{name} had no turn" for name in workers if length_s >= _WORTH_A_WORD_S and name not in had]
    return "; ".join([words, *parts])


def _packed(stretch: PackingPeriod, explained: RunExplanation) -> str:
    names = list(stretch.jobs)
    if len(names) == 1:
        return f"{names[0]} alone"
    if served := [name for name in names if name in explained.services]:  # they work only while they have requests
        rest = [name for name in names if name not in explained.services]
        kind = "the service" if len(served) == 1 else "the services"
        return f"{listed(rest)} beside {kind} {listed(served)}" if rest else f"{kind} {listed(served)}"
    if findings := [found for each in stretch.findings(explained.timeline.solos) if (found := _finding(each, names))]:
        return f"{listed(names)}: {'; '.join(findings)}"
    if stretch.expected:
        expected = speeds([stretch.expected[name] for name in names])
        return f"{listed(names)}: expected at {expected} of their speeds alone"
    return listed(names)


def _ending(explained: RunExplanation) -> Iterator[str]:
    if (differs_s := explained.differs_s) is not None:
        yield ""
        yield (
            f"from {_clock(differs_s)} on this version of ecoshare would have decided otherwise than the one "
            f"that ran: {_unsaid(explained)}"
        )


def _unsaid(explained: RunExplanation) -> str:
    if explained.timeline.differs_s is None:  # the log records its packings
        return "no reasons are given for that time"
    return "nothing is said of that time"


def _clock(at_s: float) -> str:
    """Time of the run in seconds, written like in the lines of `PlainProgress`."""
    return f"{at_s:.1f} s"


def _span(from_s: float, to_s: float | None) -> str:
    return f"from {_clock(from_s)} on" if to_s is None else f"{_clock(from_s)} to {_clock(to_s)}"


def _columns(lines: list[tuple[float, str, str]]) -> Iterator[str]:
    wide = max((len(when) for _, when, _ in lines), default=0)
    for _, when, words in lines:
        yield f"  {when:<{wide}}  {words}"


def as_dict(explained: RunExplanation, summary: RunSummary, only: str | None = None) -> dict[str, Any]:
    """The explanation as plain data: packings and windows of each device, and intervals with reasons of each job.

    Args:
        only: Name of one job, to leave other jobs out; None for all jobs.
    """
    names = [each.name for each in summary.jobs if only in (None, each.name)]
    return {
        "run": summary.run,
        "policy": summary.policy,
        "packings": [_stretch_dict(each, explained) for each in explained.timeline.stretches],
        "windows": [
            {"device": each.device, "job": each.job, "from_s": each.from_s, "to_s": each.to_s}
            for each in explained.windows
        ],
        "failures": {each.name: asdict(each.failed) for each in summary.devices if each.failed is not None},
        "jobs": [_job_dict(name, explained) for name in names],
        "known_to_s": explained.differs_s if explained.differs_s is not None else explained.end_s,
    }


def _stretch_dict(stretch: PackingPeriod, explained: RunExplanation) -> dict[str, Any]:
    return {
        "device": stretch.device,
        "jobs": stretch.classes,
        "from_s": stretch.from_s,
        "to_s": stretch.to_s,
        "ending": None if stretch.ending is None else stretch.ending.value,
        "expected": stretch.expected,
        "expected_w": stretch.expected_w,
        "measured": [asdict(each) for each in stretch.findings(explained.timeline.solos)],
        "settings": [{"from_s": at_s, "setting": dict(setting)} for at_s, setting in stretch.settings],
    }


def _job_dict(name: str, explained: RunExplanation) -> dict[str, Any]:
    story = explained.stories.get(name)
    return {
        "name": name,
        "intervals": [_interval_dict(each, name, explained) for each in story.intervals] if story else [],
        "remarks": [{"at_s": at_s, "words": words} for at_s, words in story.remarks] if story else [],
    }


def _interval_dict(interval: ReasonInterval, job: str, explained: RunExplanation) -> dict[str, Any]:
    reason = interval.reason
    because = None
    if reason.because is not None:
        because = {**asdict(reason.because), "why": reason.because.why.value}
    return {
        "from_s": interval.from_s,
        "to_s": interval.to_s,
        "doing": reason.doing.value,
        "device": reason.device or None,
        "beside": list(reason.beside),
        "mates": list(reason.mates),
        "expected": list(reason.speeds),
        "because": because,
        "words": _interval_words(job, interval, explained),
    }
