"""Which jobs ran beside each other on each device, from when to when, and what was expected and measured of them.

::

    0 s      a alone            12 s     (window of b)      19 s     a beside b      41 s     a alone
    ├──────── stretch ──────────┤                           ├─── stretch, trials ────┤──── stretch ───
                                                            expected as it begins      parted: both ran still

Under a policy that packs these are the members of the group: those behind it use what it leaves.
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
    Measurement,
    MeasurementStatus,
    Packing,
    Profiled,
    RunOpened,
    Setting,
    SettingAdvised,
    SettingMeasured,
    Solo,
    Usage,
)
from ecoshare.core.records import Job, Lane
from ecoshare.core.scheduler import Scheduler
from ecoshare.core.setting_selection import DEFAULT, packing_of, running
from ecoshare.core.states import JobState
from ecoshare.record.log_replay import LogReplay, ReplayMoment

OBSERVED_S = 1.0
OBSERVED_ITERATIONS = 3
"""A job's speed is told from its progress alone where it had its turn so long and ended so many iterations."""

PASSING_S = 1.0
"""The jobs of a group start one after the other: what ran for less than this until others came was no packing."""


class PackingEnding(Enum):
    """Why a stretch is over."""

    PARTED = "parted"
    """The scheduler chose another group, though all could have gone on."""
    JOINED = "joined"
    """Somebody came beside them."""
    LEFT = "left"
    """One of them ended or was stopped."""
    WINDOW = "window"
    """A job was measured alone."""
    CUT_OFF = "cut off"
    """Nobody told how it went on: the session ended, or the core could not follow its log any more."""


@dataclass(frozen=True, slots=True)
class PackingFinding:
    """What a trial at the default setting has shown of jobs beside each other.

    Attributes:
        at_s: When it was over.
        speeds: By job, over that alone; only those that are known.
        expected: The same, as it was foreseen.
        kept: Whether they went on beside each other.
    """

    at_s: float
    speeds: dict[str, float]
    expected: dict[str, float]
    power_w: float | None
    expected_w: float | None
    kept: bool


@dataclass(slots=True)
class PackingPeriod:
    """A time during which the same jobs ran on a device.

    Attributes:
        classes: By job.
        packing: Of these classes, as they were at its end.
        expected: By job, speed over that alone and its standard deviation, as they were foreseen last before they were
            measured; empty where nothing was.
        expected_w: Of the device; None where watts are not known.
        to_s: None while it goes on.
        settings: In force, and from when on; the first from its beginning.
        trials: That were measured in it, and when each was over.
        searched: When the search of its setting was over, the best setting, and why it was over.
        progress: First and last progress at the default setting that each job told in it.
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
        """Names of those that ran."""
        return tuple(self.classes)

    def parts(self, end_s: float) -> list[tuple[Setting, float, float]]:
        """Each setting that was in force, from when to when.

        Args:
            end_s: Of the run, where the stretch has no end.
        """
        ends = [at_s for at_s, _ in self.settings[1:]] + [end_s if self.to_s is None else self.to_s]
        return [(setting, from_s, to_s) for (from_s, setting), to_s in zip(self.settings, ends, strict=True)]

    def speeds(self, trial: Measurement, solos: dict[str, Solo]) -> dict[str, float]:
        """By job: its speed in a trial over that of its class alone; only those of which both are known."""
        found = {}
        for job, time_s in trial.times_s.items():
            solo = solos.get(self.classes.get(job, ""))
            if solo is not None and solo.iteration_s and time_s > 0.0:
                found[job] = solo.iteration_s / time_s
        return found

    def findings(self, solos: dict[str, Solo]) -> list[PackingFinding]:
        """What the trials at the default setting have shown."""
        expected = {job: speed for job, (speed, _) in self.expected.items()}
        kept = self.ending is not PackingEnding.PARTED
        return [
            PackingFinding(at_s, self.speeds(trial, solos), expected, trial.power_w, self.expected_w, kept)
            for at_s, trial in self.trials
            if trial.status is MeasurementStatus.MEASURED and trial.setting == DEFAULT
        ]

    def observed(self, solos: dict[str, Solo]) -> tuple[dict[str, float], dict[str, str]]:
        """Speed over that alone of each job by its progress at the default setting, and why others have none.

        Jobs that evaluated have none: an iteration of evaluation takes another time than one of training.
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
        """Whether they only ran until the next one of their group had started, too."""
        over = self.to_s is not None and self.to_s - self.from_s < PASSING_S
        return (
            over
            and self.ending in (PackingEnding.JOINED, PackingEnding.PARTED, PackingEnding.CUT_OFF)
            and not self.trials
        )


@dataclass(slots=True)
class PackingTimeline:
    """All stretches of a run, in the order in which they began.

    Attributes:
        solos: What is known of each class alone, in the end.
        kept: By packing, the setting that a search has found best, here or in an earlier run.
        differs_s: From when on this version of the core would have decided otherwise, so that nothing more is known.
    """

    stretches: list[PackingPeriod] = field(default_factory=list)
    solos: dict[str, Solo] = field(default_factory=dict)
    kept: dict[Packing, Setting] = field(default_factory=dict)
    differs_s: float | None = None


def course(entries: Iterable[Event | Command]) -> PackingTimeline:
    """The stretches of a log."""
    replay, watch = LogReplay(entries), PackingWatch()
    for moment in replay:
        watch.see(moment)
    return watch.finished(replay)


class PackingWatch:
    """Keeps up the stretches of a run, moment by moment.

    Attributes:
        course: As far as it was seen.
        open: By device, the stretch that goes on.
    """

    def __init__(self) -> None:
        """Nothing was seen."""
        self.course = PackingTimeline()
        self.open: dict[str, PackingPeriod] = {}
        self._settings: dict[str, Setting] = {}
        self._applying: dict[int, ApplySetting] = {}
        self._trials: dict[int, MeasureSetting] = {}
        self._windows: dict[int, str] = {}
        self._asked: dict[int, AskSetting] = {}
        self._now_s = 0.0

    def see(self, moment: ReplayMoment) -> None:
        """One more moment."""
        event = moment.event
        if isinstance(event, RunOpened):
            self._begin_session(event)
        self._now_s = event.at_s
        self._take(event, moment.core)
        for command in moment.commands:
            self._note(command)
        if isinstance(event, InterferencePredicted | Profiled):
            self._foresee(moment.core)
        for device, lanes in moment.core.inside.room.devices.items():
            self._look(device, lanes, moment.core)

    def finished(self, replay: LogReplay) -> PackingTimeline:
        """The course of a log that was replayed; what went on when the core could not follow any more ends there."""
        self.course.differs_s = replay.differs_s
        if replay.is_lost:
            self._cut_off()
        return self.course

    def _cut_off(self) -> None:
        for device in list(self.open):
            self._close(device, PackingEnding.CUT_OFF)

    def _begin_session(self, event: RunOpened) -> None:
        """Commands are counted anew, and the guard has put everything back."""
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
        """Whether others run there now."""
        inside = core.inside
        is_window = inside.profiling.occupies(lanes[0])
        present = running if inside.packer is None else inside.packer.present
        jobs = [] if is_window else present(lanes)
        stretch = self.open.get(device)
        if stretch is not None and {job.spec.name for job in jobs} == set(stretch.jobs):
            stretch.packing = packing_of(jobs)  # a job that goes on in another lane gets there a little later
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
        """What is expected of those that were not measured beside each other yet."""
        if (packer := core.inside.packer) is None:
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
    """Why it is over, where nobody is measured."""
    if any(core.jobs[name].state is not JobState.RUNNING for name in stretch.jobs):
        return PackingEnding.LEFT
    return PackingEnding.JOINED if set(stretch.jobs) < {job.spec.name for job in now} else PackingEnding.PARTED
