"""Shows a run while it goes on, on stderr: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.plural import counted, listed
from ecoshare.core.commands import Command, ParkJob, ProfileJob, ResumeJob, StartJob
from ecoshare.core.events import (
    CancelRequested,
    DeviceFailed,
    Event,
    Exhausted,
    IterationsDone,
    JobArrived,
    JobExited,
    Parked,
    Profiled,
    Refused,
    Resumed,
    RunOpened,
    SettingAdvised,
    StopRequested,
)
from ecoshare.jobs.quantities import format_duration, number
from ecoshare.lane.messages import GRACE_S
from ecoshare.record.log_fold import LogFold
from ecoshare.record.run_view import JobView, ProgressDisplay, RunView, ServiceStatus, SweepView
from ecoshare.reporting.figures import UNKNOWN, broken, turn_wait, with_steps
from ecoshare.reporting.tables.result_tables import metric_name
from ecoshare.reporting.tables.text_table import TableColumn, laid_out

COLOURS = {
    "running": "green",
    "starting": "cyan",
    "stopping": "yellow",
    "completed": "bright_black",
    "failed": "red",
    "cancelled": "yellow",
    "pruned": "bright_black",
}
_AS_IT_SHOULD = (Outcome.COMPLETED, Outcome.PRUNED, Outcome.STOPPED)
_MOST_ROWS = 30
_MOST_NEWS = 4
_MOST_REASONS = 3
_PLAIN_EVERY_S = 10.0
_PLAIN_FIRST_S, _PLAIN_SHARE = 1.0, 0.05
"""Least time (s) between two lines about a sweep, and least part of the time of the run."""
_WORTH_A_WORD_S = 0.05
_STILL_S = 45.0


class Silent:
    """A progress display that shows nothing."""

    def event(self, event: Event, commands: list[Command]) -> None:
        """Do nothing."""

    def is_due(self, at_s: float) -> bool:
        """Never."""
        return False

    def show(self, view: RunView) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Expendable:
    """Passes everything on to another display until that fails: a broken terminal or pipe must not end a run."""

    def __init__(self, shown: ProgressDisplay) -> None:
        self._shown: ProgressDisplay = shown

    def event(self, event: Event, commands: list[Command]) -> None:
        """Pass an event on."""
        with self._silenced():
            self._shown.event(event, commands)

    def is_due(self, at_s: float) -> bool:
        """Whether the other display would show the state of the run."""
        with self._silenced():
            return self._shown.is_due(at_s)
        return False

    def show(self, view: RunView) -> None:
        """Pass a view of the run on."""
        with self._silenced():
            self._shown.show(view)

    def close(self) -> None:
        """Close the other display."""
        with self._silenced():
            self._shown.close()

    @contextmanager
    def _silenced(self) -> Iterator[None]:
        try:
            yield
        except (OSError, SystemExit):  # rich raises SystemExit if its output stream was closed
            self._shown = Silent()


class _Lines:
    """A display of plain lines, each with its time.

    Attributes:
        _said_s: Time (s) at which the state of the run was printed last.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said_s = 0.0
        self._told: set[str] = set()  # subjects of the present troubles that were printed
        self._fold = LogFold(self)

    def event(self, event: Event, commands: list[Command]) -> None:
        """Print what a method of the display has to say of an event, and of the commands that followed."""
        for entry in (event, *commands):
            self._fold.take(entry)

    def close(self) -> None:
        """Do nothing: no line is pending."""

    def is_due(self, at_s: float) -> bool:
        """Whether the last time was ten seconds ago."""
        return at_s - self._said_s >= _PLAIN_EVERY_S

    def _say(self, at_s: float, text: str) -> None:
        # Not by rich, which takes half a millisecond for a line: a run may start and end hundreds of jobs a minute.
        print(f"{at_s:8.1f} s  {text}", file=self._console.file, flush=True)

    def _warn(self, view: RunView) -> None:
        """Print each trouble once, and again if it has gone and come back."""
        for subject, words in view.warnings.items():
            if subject not in self._told:
                self._say(view.at_s, words)
        self._told = set(view.warnings)


class PlainProgress(_Lines):
    """Prints a line for each start and end of a job, and the state of the run every ten seconds.

    Trials of a sweep get a line of their own only if they fail. When one has ended, the state of the run is printed:
    once a second in the first seconds, then ever less often. A job that is parked often has a line in ten seconds.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._windows_s: dict[int, float] = {}  # begin (s) of each window, by its command
        self._said: dict[str, float] = {}  # time (s) at which it was last said that a job is parked
        self._hushed: set[str] = set()  # parked jobs of which that was not said
        self._trials: set[str] = set()
        self._keepers: set[str] = set()
        self._services: set[str] = set()
        self._trial_has_ended = False

    def is_due(self, at_s: float) -> bool:
        """Whether the last time was ten seconds ago, or a trial has ended since then."""
        soon_s = max(_PLAIN_FIRST_S, _PLAIN_SHARE * at_s)
        return super().is_due(at_s) or (self._trial_has_ended and at_s - self._said_s >= soon_s)

    def on_run_opened(self, event: RunOpened) -> None:
        if joined := joined_line(event):
            self._say(event.at_s, joined)

    def on_device_failed(self, event: DeviceFailed) -> None:
        self._say(event.at_s, failure_line(event))

    def on_stop_requested(self, event: StopRequested) -> None:
        self._say(event.at_s, stop_line(event.at_once))

    def on_cancel_requested(self, event: CancelRequested) -> None:
        self._say(event.at_s, f"{event.job}: is cancelled: {event.reason}")

    def on_exhausted(self, event: Exhausted, _command: Command | None) -> None:
        if event.error:
            self._say(event.at_s, f"a sampler failed, and no more trials are drawn: {event.error}")

    def on_job_arrived(self, event: JobArrived) -> None:
        if event.job.sweep:
            self._trials.add(event.job.name)
        if event.job.service is not None:
            self._services.add(event.job.name)

    def on_start_job(self, command: StartJob, at_s: float) -> None:
        if command.job not in self._trials:
            again = f", attempt {command.attempt}" if command.attempt > 1 else ""
            self._say(at_s, f"{command.job}: starts in lane {_lanes(command.lanes)}{again}")

    def on_iterations_done(self, event: IterationsDone) -> None:
        if event.usage.keeps_lane and event.job not in self._keepers:
            self._keepers.add(event.job)
            if event.job not in self._trials:
                self._say(event.at_s, f"{event.job}: keeps its lane to its end: {event.usage.keeps_lane}")

    def on_job_exited(self, event: JobExited) -> None:
        if event.job in self._trials:
            self._trial_has_ended = True
            if event.outcome in _AS_IT_SHOULD:
                return
        done = "" if event.job in self._services else f" ({_done(event.usage)})"
        how = "completed" if event.outcome is Outcome.COMPLETED else f"{event.outcome.value}: {event.reason}"
        which = f", attempt {event.attempt}" if event.attempt > 1 else ""
        self._say(event.at_s, f"{event.job}{which}: {how}{done}")

    def on_profile_job(self, command: ProfileJob, at_s: float) -> None:
        self._windows_s[command.id] = at_s
        self._say(at_s, f"{command.job}: the first of its class, is measured alone for some seconds")

    def on_profiled(self, event: Profiled, command: Command | None) -> None:
        if isinstance(command, ProfileJob):
            took = format_duration(event.at_s - self._windows_s.pop(event.command))
            found = f"no profile: {event.error}" if event.error else f"profiled in {took}"
            self._say(event.at_s, f"{command.job}: {found}")

    def on_refused(self, event: Refused, command: Command | None) -> None:
        if isinstance(command, ParkJob):
            self._say(event.at_s, f"{command.job}: is not parked: {event.error}")

    def on_parked(self, event: Parked, command: Command | None) -> None:
        if not isinstance(command, ParkJob):
            return
        if event.at_s - self._said.get(command.job, -math.inf) < _PLAIN_EVERY_S:
            self._hushed.add(command.job)
        else:
            self._said[command.job] = event.at_s
            self._say(event.at_s, f"{command.job}: parked{_after(event.took_s)}")

    def on_resumed(self, event: Resumed, command: Command | None) -> None:
        if not isinstance(command, ResumeJob):
            return
        if command.job in self._hushed:
            self._hushed.remove(command.job)
        else:
            self._say(event.at_s, f"{command.job}: goes on{_after(event.took_s)}")

    def show(self, view: RunView) -> None:
        """Print the progress of running jobs and sweeps."""
        self._said_s, self._trial_has_ended = view.at_s, False
        self._warn(view)
        running = [f"{job.name} {_progress(job)}" for job in view.jobs if job.state == "running"]
        if running:
            self._say(view.at_s, " | ".join(running[:_MOST_ROWS]))
        for sweep in view.sweeps:
            self._say(view.at_s, _sweep(sweep))


class StagesProgress(PlainProgress):
    """Prints a line for each start, end and window of a search. `TrialLines` prints the measurements."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._over = self._warned = False

    def on_setting_advised(self, event: SettingAdvised, _command: Command | None) -> None:
        if event.over:
            self._over = True
            self._say(event.at_s, "the search is over; stopping the jobs")

    def on_stop_requested(self, event: StopRequested) -> None:
        if not self._over:
            super().on_stop_requested(event)

    def on_job_exited(self, event: JobExited) -> None:
        if not (self._over and event.outcome is Outcome.STOPPED):
            super().on_job_exited(event)

    def is_due(self, at_s: float) -> bool:
        """Whether the search has waited for so long, and nothing was said yet."""
        return at_s > _STILL_S and not self._warned

    def show(self, view: RunView) -> None:
        """Print once which jobs have no iteration after `_STILL_S` seconds, since the search waits for them."""
        still = [job.name for job in view.jobs if job.state == "running" and not job.iterations + job.eval_iterations]
        if still:
            self._warned = True
            words = "an optimizer's step ends one, so does a backward pass through a module without an optimizer, "
            words += "and so does inference with a module; else call ecoshare.iteration()"
            self._say(view.at_s, f"no iteration seen yet in {', '.join(still)}, and the search waits for them: {words}")


class MeasuringProgress(_Lines):
    """Prints a line for each stage of a run that only makes a profile."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._measured = False

    def on_start_job(self, command: StartJob, at_s: float) -> None:
        self._say(at_s, f"{command.job} starts; its first iterations are dropped")

    def on_profile_job(self, _command: ProfileJob, at_s: float) -> None:
        self._say(at_s, "it is warm: measuring its memory, then times and joules")

    def on_profiled(self, event: Profiled, _command: Command | None) -> None:
        if not event.error:
            self._measured = True
            self._say(event.at_s, "measured; stopping the script")

    def on_job_exited(self, event: JobExited) -> None:
        if event.outcome is not Outcome.STOPPED:
            self._say(event.at_s, f"{event.job} ended by itself: {event.reason or event.outcome.value}")

    def on_stop_requested(self, event: StopRequested) -> None:
        if not self._measured:
            self._say(event.at_s, stop_line(event.at_once))

    def is_due(self, at_s: float) -> bool:
        """Whether the last time was ten seconds ago, and the script is not measured yet."""
        return super().is_due(at_s) and not self._measured

    def show(self, view: RunView) -> None:
        """Print the progress of the script."""
        self._said_s = view.at_s
        self._warn(view)
        self._say(view.at_s, ", ".join(f"{_progress(job)} {_iterations(job)}".rstrip() for job in view.jobs))


class LiveProgress:
    """A table that is redrawn a few times a second."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()
        self._note = ""
        self._window = ""
        self._news: deque[str] = deque(maxlen=_MOST_NEWS)

    def event(self, event: Event, commands: list[Command]) -> None:
        """Keep the notes about a window or a stop that stand below the table."""
        if isinstance(event, StopRequested):
            self._note = stop_line(event.at_once)
        if isinstance(event, RunOpened) and (joined := joined_line(event)):
            self._news.append(joined)
        if isinstance(event, DeviceFailed):
            self._news.append(failure_line(event))
        if isinstance(event, Profiled):
            self._window = ""
        for command in commands:
            if isinstance(command, ProfileJob):
                self._window = f"{command.job}, the first of its class, is measured alone for some seconds"

    def is_due(self, at_s: float) -> bool:
        """Always."""
        return True

    def show(self, view: RunView) -> None:
        """Draw the table."""
        self._live.update(self._table(view), refresh=True)

    def close(self) -> None:
        """Stop drawing and release the terminal."""
        self._live.stop()

    def _width(self) -> int:
        return self._live.console.width

    def _table(self, view: RunView) -> Group:
        counts = Counter(job.state for job in view.jobs)
        title = f"{format_duration(view.at_s)}   " + "  ".join(f"{count} {state}" for state, count in counts.items())
        if not view.warm:
            title += "   (loading torch)"
        failed = [f"{job.name}: {job.reason}" for job in view.jobs if job.reason][-_MOST_REASONS:]
        below = [line if len(line) <= self._width() else line[: self._width() - 1] + "…" for line in failed]
        sweeps = [_sweep(sweep) for sweep in view.sweeps]
        jobs = _most_interesting(view.jobs)
        table = laid_out(list(_columns(jobs)), self._width(), self._live.console.encoding)
        if len(view.jobs) > len(jobs):
            table.append(Text(f"… and {len(view.jobs) - len(jobs)} more", style="bright_black"))
        told = [Text(line) for line in (*sweeps, *below, *self._news, *filter(None, (self._window, self._note)))]
        told += [Text(words, style="yellow") for words in view.warnings.values()]
        return Group(Text(title), *table, *(part for line in told for part in broken(line, self._width())))


def _columns(jobs: Sequence[JobView]) -> Iterator[TableColumn]:
    states = [Text(("▶ " if job.holding else "  ") + _state(job), style=COLOURS.get(job.state, "")) for job in jobs]
    yield TableColumn(Text("job"), [Text(job.name) for job in jobs], is_name=True)
    yield TableColumn(Text("state"), states)
    if any(job.devices for job in jobs):
        yield TableColumn(Text("device"), [Text(",".join(job.devices)) for job in jobs], lesser=3)
    for name, lesser, cells in (
        ("lane", 4, [_lanes(job.lanes) for job in jobs]),
        ("iterations", 0, [_count(job) for job in jobs]),
        ("it/s", 1, [f"{job.rate:.1f}" if job.rate is not None else "" for job in jobs]),
        ("slowdown", 2, [f"{job.slowdown:.2f}" if job.slowdown is not None else "" for job in jobs]),
    ):
        yield TableColumn(Text(name), [Text(cell) for cell in cells], right=True, lesser=lesser)
    yield from _metric_columns(jobs)
    if any(job.service is not None for job in jobs):
        yield from _service_columns(jobs)


def _metric_columns(jobs: Sequence[JobView]) -> Iterator[TableColumn]:
    """A column with the last value of each trial, for each metric."""
    for metric in dict.fromkeys(job.metric[0] for job in jobs if job.metric is not None):
        cells = [number(job.metric[1]) if job.metric is not None and job.metric[0] == metric else "" for job in jobs]
        yield TableColumn(Text(metric_name(metric)), [Text(cell) for cell in cells], right=True)


def _state(job: JobView) -> str:
    if job.turn_wait_s:
        return turn_wait(job.turn_wait_s, job.behind)
    return f"after {listed(job.waits_for)}" if job.waits_for else job.state


def _service_columns(jobs: Sequence[JobView]) -> Iterator[TableColumn]:
    services = [job.service for job in jobs]
    for name, lesser, cells in (
        ("requests", 0, [each and str(each.arrived) for each in services]),
        ("late", 0, [each and str(each.late) for each in services]),
        ("unanswered", 5, [each and str(each.unanswered) for each in services]),
    ):
        yield TableColumn(Text(name), [Text(cell or "") for cell in cells], right=True, lesser=lesser)
    now = [_p99(job.service) if job.service is not None and job.state == "running" else Text() for job in jobs]
    yield TableColumn(Text("p99 now"), now, right=True)


def _sweep(sweep: SweepView) -> str:
    """Progress of a sweep: ended trials by state, and the best value."""
    ended = sum(sweep.ended.values())
    others = "".join(f", {count} {state}" for state, count in sweep.ended.items() if state != "completed")
    best = f"; best {sweep.best[0]}: {number(sweep.best[1])}" if sweep.best is not None else ""
    return f"{sweep.name}: {ended} of {counted(sweep.trials, 'trial')} ended{others}{best}"


def stop_line(at_once: bool) -> str:
    """Effect of a stop in words: jobs are killed if `at_once`, else ended at their next iteration boundary."""
    if at_once:
        return "killing the jobs"
    return (
        f"stopping: jobs end at their next iteration boundary, by SIGTERM after {GRACE_S:.0f} s, "
        f"by SIGKILL after {2 * GRACE_S:.0f} s; Ctrl-C again kills them at once"
    )


def joined_line(event: RunOpened) -> str:
    """Devices that the run uses from now on, in words; empty if there are none."""
    if event.segment is None:
        return ""
    before = {device for _, device in event.segment.lanes}
    new = [each.name for each in event.devices if each.name not in before]
    return f"{listed(new)} {'joins' if len(new) == 1 else 'join'} the run" if new else ""


def failure_line(event: DeviceFailed) -> str:
    """Failure of a device in words."""
    return f"{event.device} failed: {event.reason}; its jobs begin again on other devices, if any"


def _most_interesting(jobs: tuple[JobView, ...]) -> list[JobView]:
    """At most `_MOST_ROWS` jobs; if there are more, running jobs come before waiting and ended ones."""
    if len(jobs) <= _MOST_ROWS:
        return list(jobs)
    order = ("running", "stopping", "parking", "starting", "resuming", "failed", "parked", "queued")
    places = {state: place for place, state in enumerate(order)}
    return sorted(jobs, key=lambda job: places.get(job.state, len(order)))[:_MOST_ROWS]


def _after(took_s: float) -> str:
    return f" after {format_duration(took_s)}" if took_s >= _WORTH_A_WORD_S else ""


def _lanes(lanes: tuple[int, ...]) -> str:
    return ",".join(str(lane) for lane in lanes)


def _done(usage: Usage) -> str:
    evaluated = f", {usage.eval_iterations} of evaluation" if usage.eval_iterations else ""
    return counted(usage.iterations, "optimizer step" if usage.by_steps else "iteration") + evaluated


def _count(job: JobView) -> str:
    if job.service is not None:
        return ""
    if job.by_time:
        return "by time"
    of = f"/{'~' if job.is_learned else ''}{job.total}" if job.total else ""
    if not job.iterations and job.eval_iterations:
        return f"{job.eval_iterations} eval"
    return with_steps(f"{job.iterations}{of}", job.by_steps)


def _p99(service: ServiceStatus) -> Text:
    """The percentile of the last seconds and the target; red if it is above."""
    is_late = service.p99_s is not None and service.p99_s > service.target_s
    now = UNKNOWN if service.p99_s is None else format_duration(service.p99_s)
    return Text(f"{now} of {format_duration(service.target_s)}", style="red" if is_late else "")


def _iterations(job: JobView) -> str:
    """The noun after `_progress`; none if that has it."""
    if job.by_steps:
        return ""
    return "iteration" if (job.total or job.iterations or job.eval_iterations) == 1 else "iterations"


def _progress(job: JobView) -> str:
    if (service := job.service) is not None:
        unanswered = f", {service.unanswered} unanswered" if service.unanswered else ""
        return f"{counted(service.arrived, 'request')}, {service.late} late{unanswered}, p99 now {_p99(service)}"
    rate = f" ({job.rate:.1f}/s)" if job.rate is not None else ""
    metric = f" {metric_name(job.metric[0])} {number(job.metric[1])}" if job.metric is not None else ""
    wait = f" {turn_wait(job.turn_wait_s, job.behind)}" if job.turn_wait_s else ""
    return f"{_count(job)}{rate}{metric}{wait}"
