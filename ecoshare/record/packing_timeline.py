"""Timeline of packings: the jobs that ran at once on each device, with their expected and measured speeds.

::

    0 s      a alone            12 s     (window of b)      19 s     a beside b      41 s     a alone
    ├──────── stretch ──────────┤                           ├─── stretch, trials ────┤──── stretch ───
                                                            expected at the start      parted: both still ran

Under a policy that packs, only members of the group count: other jobs on the device use what the group leaves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from ecoshare.core.commands import ApplySetting, AskSetting, Command, MeasureSetting, ProfileJob
from ecoshare.core.events import (
    Done,
    Event,
    InterferencePredicted,
    IterationsDone,
    JobArrived,
    JobExited,
    Profiled,
    RunOpened,
    SettingAdvised,
    SettingMeasured,
)
from ecoshare.core.records import Job, Lane
from ecoshare.core.scheduler import Scheduler
from ecoshare.core.setting_selection import DEFAULT, packing_of
from ecoshare.core.states import JobState
from ecoshare.record.log_replay import LogReplay, ReplayMoment
from ecoshare.values.attempt import Usage
from ecoshare.values.class_profile import Solo
from ecoshare.values.measurement import Measurement, MeasurementStatus
from ecoshare.values.packing import Packing
from ecoshare.values.setting import Setting

OBSERVED_S = 1.0
OBSERVED_ITERATIONS = 3
"""Least time (s) with the turn and fewest finished iterations that give a job's speed from its progress."""

PASSING_S = 1.0
"""Shortest time (s) of a packing: the jobs of a group start one after the other, so a shorter stretch is passing."""


class PackingEnding(Enum):
    """Reason why a stretch ended."""

    PARTED = "parted"
    """The scheduler chose another group although all jobs could have continued."""
    JOINED = "joined"
    """Another job joined."""
    LEFT = "left"
    """At least one of the jobs ended or was stopped."""
    WINDOW = "window"
    """A job was measured alone."""
    CUT_OFF = "cut off"
    """The rest is not known: the session ended, or the core could no longer follow its log."""


@dataclass(frozen=True, slots=True)
class PackingFinding:
    """Result of a measurement of a packing at the default setting.

    Attributes:
        at_s: Time (s) at which the measurement ended.
        speeds: Relative speed of each job: rate in the packing / rate alone; only known speeds.
        expected: Predicted relative speed of each job.
        power_w: Mean power (W) of the device; None if not known.
        expected_w: Predicted power (W) of the device; None if not known.
        kept: False if the scheduler parted the jobs afterwards.
    """

    at_s: float
    speeds: dict[str, float]
    expected: dict[str, float]
    power_w: float | None
    expected_w: float | None
    kept: bool


@dataclass(slots=True)
class PackingPeriod:
    """Stretch of time during which the same jobs ran on a device.

    Attributes:
        classes: Class of each job, by name.
        packing: Packing of these classes, as last seen.
        expected: Relative speed of each job and its standard deviation, from the last forecast before a measurement;
            empty without a forecast.
        expected_w: Predicted power (W) of the device; None if watts are not known.
        to_s: End (s) of the stretch; None while it lasts.
        settings: Times (s) with the setting in force from then on; the first is the start of the stretch.
        trials: Measurements in the stretch, each with the time (s) at which it ended.
        searched: Time (s) at which the search for a setting ended, the best setting, and the reason for the end.
        progress: First and last progress of each job, reported while only the default setting had been in force.
    """

    device: str
    classes: dict[str, str]
    packing: Packing
    from_s: float
    expected: dict[str, tuple[float, float]] = field(default_factory=dict)
    expected_w: float | None = None
    to_s: float | None = None
    ending: PackingEnding | None = None
    settings: list[tuple[float, Setting]] = field(default_factory=list)
    trials: list[tuple[float, Measurement]] = field(default_factory=list)
    searched: tuple[float, Setting, str] | None = None
    progress: dict[str, tuple[Usage, Usage]] = field(default_factory=dict)

    @property
    def jobs(self) -> tuple[str, ...]:
        """Names of the jobs."""
        return tuple(self.classes)

    def parts(self, end_s: float) -> list[tuple[Setting, float, float]]:
        """Settings in force, each with its start and end (s).

        Args:
            end_s: End (s) of the run, which ends a stretch that still lasts.
        """
        ends = [at_s for at_s, _ in self.settings[1:]] + [end_s if self.to_s is None else self.to_s]
        return [(setting, from_s, to_s) for (from_s, setting), to_s in zip(self.settings, ends, strict=True)]

    def speeds(self, trial: Measurement, solos: dict[str, Solo]) -> dict[str, float]:
        """Relative speed of each job in a measurement: rate there / rate of its class alone; only known speeds."""
        found = {}
        for job, time_s in trial.times_s.items():
            solo = solos.get(self.classes.get(job, ""))
            if solo is not None and solo.iteration_s and time_s > 0.0:
                found[job] = solo.iteration_s / time_s
        return found

    def findings(self, solos: dict[str, Solo]) -> list[PackingFinding]:
        """Results of the finished measurements at the default setting."""
        expected = {job: speed for job, (speed, _) in self.expected.items()}
        kept = self.ending is not PackingEnding.PARTED
        return [
            PackingFinding(at_s, self.speeds(trial, solos), expected, trial.power_w, self.expected_w, kept)
            for at_s, trial in self.trials
            if trial.status is MeasurementStatus.MEASURED and trial.setting == DEFAULT
        ]

    def observed(self, solos: dict[str, Solo]) -> tuple[dict[str, float], dict[str, str]]:
        """Relative speed of each job from its progress at the default setting, and the reason for each job without one.

        Jobs that evaluated have none, because an evaluation iteration takes another time than a training iteration.
        """
        speeds, missing = {}, {}
        for job, name in self.classes.items():
            solo = solos.get(name)
            first, last = self.progress.get(job, (Usage(), Usage()))
            held_s, done = last.held_s - first.held_s, last.iterations - first.iterations
            if solo is None or not solo.iteration_s:
                missing[job] = "no profile"
            elif last.eval_iterations != first.eval_iterations:
                missing[job] = "evaluated"
            elif held_s < OBSERVED_S or done < OBSERVED_ITERATIONS:
                missing[job] = "too short"
            else:
                speeds[job] = solo.iteration_s * done / held_s
        return speeds, missing

    def is_passing(self) -> bool:
        """Whether the stretch is too short to count as a packing: its group was still starting."""
        over = self.to_s is not None and self.to_s - self.from_s < PASSING_S
        return (
            over
            and self.ending in (PackingEnding.JOINED, PackingEnding.PARTED, PackingEnding.CUT_OFF)
            and not self.trials
        )


@dataclass(slots=True)
class PackingTimeline:
    """All stretches of a run.

    Attributes:
        stretches: Stretches in order of their start.
        solos: Values of each class alone, as known at the end.
        kept: Best setting that a search found for each packing, in this or an earlier run.
        differs_s: Time (s) from which this core decides differently from the core of the run; None if it never does.
    """

    stretches: list[PackingPeriod] = field(default_factory=list)
    solos: dict[str, Solo] = field(default_factory=dict)
    kept: dict[Packing, Setting] = field(default_factory=dict)
    differs_s: float | None = None


def course(entries: Iterable[Event | Command]) -> PackingTimeline:
    """Replay a log and return its stretches."""
    replay, watch = LogReplay(entries), PackingWatch()
    for moment in replay:
        watch.see(moment)
    return watch.finished(replay)


class PackingWatch:
    """Builds the stretches of a run, moment by moment.

    Attributes:
        course: Stretches seen so far.
        open: Stretch that still lasts on each device.
    """

    def __init__(self) -> None:
        """Begin without stretches."""
        self.course = PackingTimeline()
        self.open: dict[str, PackingPeriod] = {}
        self._settings: dict[str, Setting] = {}
        self._applying: dict[int, ApplySetting] = {}
        self._trials: dict[int, MeasureSetting] = {}
        self._windows: dict[int, str] = {}
        self._asked: dict[int, AskSetting] = {}
        self._now_s = 0.0

    def see(self, moment: ReplayMoment) -> None:
        """Process the next moment of the replay."""
        event = moment.event
        if isinstance(event, RunOpened):
            self._begin_session(event)
        self._now_s = event.at_s
        self._take(event, moment.core)
        for command in moment.commands:
            self._note(command)
        if isinstance(event, InterferencePredicted | Profiled):
            self._foresee(moment.core)
        for device, lanes in moment.core.view.lane_index.devices.items():
            self._look(device, lanes, moment.core)

    def finished(self, replay: LogReplay) -> PackingTimeline:
        """Stretches of a replayed log; if the core could not follow its end, open stretches are cut off."""
        self.course.differs_s = replay.differs_s
        if replay.is_lost:
            self._cut_off()
        return self.course

    def _cut_off(self) -> None:
        for device in list(self.open):
            self._close(device, PackingEnding.CUT_OFF)

    def _begin_session(self, event: RunOpened) -> None:
        """Begin a session: commands are numbered anew, and the guard has restored all settings."""
        self._cut_off()
        for kept in (self._settings, self._applying, self._trials, self._windows, self._asked):
            kept.clear()
        self.course.kept.update({each.packing: each.setting for each in event.known_settings})

    def _take(self, event: Event, core: Scheduler) -> None:
        match event:
            case IterationsDone():
                self._progress(event.job, event.usage)
            case JobExited():
                self._progress(event.job, event.usage)
            case JobArrived() if event.job.solo is not None:
                self.course.solos.setdefault(event.job.job_class, event.job.solo)
            case Profiled() if event.command in self._windows and event.solo is not None:
                job = core.jobs[self._windows.pop(event.command)]
                self.course.solos[job.spec.job_class] = event.solo
            case Done() if event.command in self._applying:
                applied = self._applying.pop(event.command)
                self._settings[applied.device] = applied.setting
                if (stretch := self.open.get(applied.device)) is not None:
                    stretch.settings.append((event.at_s, applied.setting))
            case SettingMeasured() if event.command in self._trials:
                asked = self._trials.pop(event.command)
                stretch = self.open.get(asked.device)
                if stretch is not None and set(asked.jobs) == set(stretch.jobs):
                    stretch.trials.append((event.at_s, event.measurement))
            case SettingAdvised() if event.command in self._asked:
                self._advised(self._asked.pop(event.command), event)

    def _progress(self, job: str, usage: Usage) -> None:
        for stretch in self.open.values():
            if job in stretch.classes and all(setting == DEFAULT for _, setting in stretch.settings):
                first, _ = stretch.progress.get(job, (usage, usage))
                stretch.progress[job] = first, usage

    def _advised(self, asked: AskSetting, event: SettingAdvised) -> None:
        if not event.over:
            return
        self.course.kept[asked.packing] = event.setting
        stretch = self.open.get(asked.device)
        if stretch is not None and stretch.packing == asked.packing:
            stretch.searched = event.at_s, event.setting, event.note

    def _note(self, command: Command) -> None:
        match command:
            case ApplySetting():
                self._applying[command.id] = command
            case MeasureSetting():
                self._trials[command.id] = command
            case ProfileJob():
                self._windows[command.id] = command.job
            case AskSetting():
                self._asked[command.id] = command

    def _look(self, device: str, lanes: list[Lane], core: Scheduler) -> None:
        """End and begin stretches on a device if other jobs run there now."""
        view = core.view
        is_window = view.profiling.occupies(lanes[0])
        jobs = [] if is_window else view.placement.present(lanes)
        stretch = self.open.get(device)
        if stretch is not None and {job.spec.name for job in jobs} == set(stretch.jobs):
            stretch.packing = packing_of(jobs)  # a job that changes lanes arrives there a little later
            return
        if stretch is not None:
            self._close(device, PackingEnding.WINDOW if is_window else _ending(stretch, jobs, core))
        if jobs:
            self._begin(device, jobs, core)

    def _begin(self, device: str, jobs: list[Job], core: Scheduler) -> None:
        classes = {job.spec.name: job.spec.job_class for job in jobs}
        stretch = PackingPeriod(device, classes, packing_of(jobs), self._now_s)
        stretch.settings.append((self._now_s, self._settings.get(device, DEFAULT)))
        self.open[device] = stretch
        self.course.stretches.append(stretch)
        self._foresee(core)

    def _foresee(self, core: Scheduler) -> None:
        """Update the forecast of each open stretch without measurements."""
        if (packer := core.view.placement.groups) is None:
            return
        knows_watts = any(solo.power_w is not None for solo in packer.outlook.solos.values())
        for stretch in self.open.values():
            if not stretch.trials:
                forecast = packer.outlook.forecast(list(stretch.classes.values()))
                both = zip(forecast.speeds, forecast.errors, strict=True)
                stretch.expected = dict(zip(stretch.classes, both, strict=True))
                stretch.expected_w = forecast.power_w if knows_watts else None

    def _close(self, device: str, ending: PackingEnding) -> None:
        stretch = self.open.pop(device)
        stretch.to_s, stretch.ending = self._now_s, ending


def _ending(stretch: PackingPeriod, now: list[Job], core: Scheduler) -> PackingEnding:
    """Reason for the end of a stretch that no window ended."""
    if any(core.jobs[name].state is not JobState.RUNNING for name in stretch.jobs):
        return PackingEnding.LEFT
    return PackingEnding.JOINED if set(stretch.jobs) < {job.spec.name for job in now} else PackingEnding.PARTED
