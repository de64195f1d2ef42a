"""Timeline of packings: the jobs that ran at once on each device, with their expected and measured speeds.

::

    0 s      a alone            12 s     (window of b)      19 s     a beside b      41 s     a alone
    ├──────── stretch ──────────┤                           ├─── stretch, measured ───┤──── stretch ───
                                                            expected at the start      parted: both still ran

Under a policy that packs, only members of the group count: other jobs on the device use what the group leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise

from ecoshare.base.attempt import Usage
from ecoshare.base.class_profile import Solo
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.measurement import AS_FOUND, JobPhase, Measurement, MeasurementStatus, Packing, Setting, class_in
from ecoshare.core.commands import ApplySetting, AskSetting, Command, MeasureSetting, OpenLane, ProfileJob, StartJob
from ecoshare.core.events import (
    ClassesKnown,
    Done,
    Event,
    IterationsDone,
    JobArrived,
    JobExited,
    PhaseBegan,
    Profiled,
    RunOpened,
    SettingAdvised,
    SettingMeasured,
)
from ecoshare.core.scheduler import Scheduler
from ecoshare.record.event_log import LogStep, sessions, steps
from ecoshare.record.log_fold import LogEntry, LogFold
from ecoshare.record.packing_record import PackingChanged, PackingEnding, PackingRecorder


@dataclass(frozen=True, slots=True)
class ReplayMoment:
    """An event and the commands that followed from it.

    Attributes:
        core: Core after the event; the same object at every moment of a session.
        next_s: Time (s) of the next event of the session; None after the last one.
    """

    event: Event
    commands: tuple[Command, ...]
    core: Scheduler
    next_s: float | None


class LogReplay:
    """The moments of a log, session by session: every `RunOpened` begins with a fresh core.

    Explanations of a decision come from this core, so they state the facts that the decision was made from.

    If this core decides differently from the core of the run, or fails on an event, the rest of that session is left
    out. This happens with a log of another version of ecoshare, or with events that are not in order.

    Attributes:
        differs_s: Time (s) of the first event on which the cores differ; None if there is none.
        is_lost: Whether the last session of the log is cut short for this reason.
    """

    def __init__(self, entries: Iterable[LogEntry]) -> None:
        """Prepare the replay; iteration performs it.

        Args:
            entries: Entries of events.jsonl, in order.
        """
        self._entries = entries
        self.differs_s: float | None = None
        self.is_lost = False

    def __iter__(self) -> Iterator[ReplayMoment]:
        core = Scheduler()
        for here, after in pairwise(chain[LogStep | None](steps(self._entries), [None])):
            assert here is not None, "only the last one is none"
            event, logged, _ = here
            if isinstance(event, RunOpened):
                core, self.is_lost = Scheduler(), False
            if self.is_lost:
                continue
            now = _handled(core, event)
            # A kill may have cut off commands of the last event, so only the logged ones are compared.
            is_last = after is None or isinstance(after[0], RunOpened)
            known = now if now is None or not is_last else now[: len(logged)]
            if known != logged:
                self.is_lost = True
                self.differs_s = event.at_s if self.differs_s is None else self.differs_s
                continue
            yield ReplayMoment(event, tuple(logged), core, None if after is None or is_last else after[0].at_s)


def _handled(core: Scheduler, event: Event) -> list[Command] | None:
    """Commands of the core after an event; None if the core fails on it."""
    try:
        return core.handle(event)
    except Exception:  # a log that another core made may lead to any error
        return None


OBSERVED_S = 1.0
OBSERVED_ITERATIONS = 3
"""Least time (s) with the turn and fewest finished iterations that give a job's speed from its progress."""

PASSING_S = 1.0
"""Shortest time (s) of a packing: the jobs of a group start one after the other, so a shorter stretch is passing."""


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
        in_training: Packing of all jobs of the device in training: those that evaluate, and those that are away.
        expected: Relative speed of each job, from the last forecast before a measurement; empty without a forecast.
        expected_w: Predicted power (W) of the device; None if watts are not known.
        to_s: End (s) of the stretch; None while it lasts.
        settings: Times (s) with the setting in force from then on; the first is the start of the stretch.
        measurements: Measurements in the stretch, each with the time (s) at which it ended.
        searched: Time (s) at which the search for a setting ended, the best setting, and the reason for the end.
        progress: First and last progress of each job, reported while only the default setting had been in force.
        device_speeds: Relative speed of the device for each job: rate there / rate on a typical device.
    """

    device: str
    classes: dict[str, str]
    packing: Packing
    from_s: float
    in_training: Packing = ()
    expected: dict[str, float] = field(default_factory=dict)
    expected_w: float | None = None
    to_s: float | None = None
    ending: PackingEnding | None = None
    settings: list[tuple[float, Setting]] = field(default_factory=list)
    measurements: list[tuple[float, Measurement]] = field(default_factory=list)
    searched: tuple[float, Setting, str] | None = None
    progress: dict[str, tuple[Usage, Usage]] = field(default_factory=dict)
    device_speeds: dict[str, float] = field(default_factory=dict)

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

    def speeds(self, measured: Measurement, solos: dict[str, Solo]) -> dict[str, float]:
        """Relative speed of each job in a measurement: rate there / rate of its class alone; only known speeds."""
        found = {}
        for job, time_s in measured.times_s.items():
            solo = solos.get(self.classes.get(job, ""))
            if solo is not None and solo.iteration_s and time_s > 0.0:
                found[job] = solo.iteration_s / (time_s * self.device_speeds.get(job, 1.0))
        return found

    def findings(self, solos: dict[str, Solo]) -> list[PackingFinding]:
        """Results of the finished measurements at the default setting."""
        kept = self.ending is not PackingEnding.PARTED
        return [
            PackingFinding(at_s, self.speeds(found, solos), dict(self.expected), found.power_w, self.expected_w, kept)
            for at_s, found in self.measurements
            if found.status is MeasurementStatus.MEASURED and found.setting == AS_FOUND
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
                speeds[job] = solo.iteration_s * done / (held_s * self.device_speeds.get(job, 1.0))
        return speeds, missing

    def is_passing(self) -> bool:
        """Whether the stretch is too short to count as a packing: its group was still starting."""
        over = self.to_s is not None and self.to_s - self.from_s < PASSING_S
        return (
            over
            and self.ending in (PackingEnding.JOINED, PackingEnding.PARTED, PackingEnding.CUT_OFF, None)
            and not self.measurements
        )


@dataclass(slots=True)
class PackingTimeline:
    """All stretches of a run.

    Attributes:
        stretches: Stretches in order of their start.
        solos: Values of each class alone on a typical device, as known at the end.
        kept: Best setting that a search found for each packing, in this or an earlier run.
        differs_s: Time (s) from which this core decides differently from the core of the run; None if it never does.
    """

    stretches: list[PackingPeriod] = field(default_factory=list)
    solos: dict[str, Solo] = field(default_factory=dict)
    kept: dict[Packing, Setting] = field(default_factory=dict)
    differs_s: float | None = None


def packing_timeline(entries: Iterable[LogEntry], unlogged: Sequence[Event] = ()) -> PackingTimeline:
    """Stretches of a run: those that its log records. A session without records is replayed by the present core.

    Args:
        entries: Entries of the log, in order.
        unlogged: Ends of attempts that the log lacks, since the controller was killed.
    """
    builder, differs_s = _Builder(), None
    found = sessions(entries)
    for number, session in enumerate(found, start=1):
        rest = unlogged if number == len(found) else ()
        if any(isinstance(entry, PackingChanged) for entry in session):
            for step in steps(session):
                builder.add(step)
            for event in rest:
                builder.end(event)
            continue
        replay, recorder = LogReplay([*session, *rest]), PackingRecorder()
        for moment in replay:
            commands = list(moment.commands)
            builder.add(LogStep(moment.event, commands, recorder.changes(moment.event, commands, moment.core)))
        if replay.is_lost:
            builder.cut_off()
        differs_s = replay.differs_s if differs_s is None else differs_s
    builder.timeline.differs_s = differs_s
    return builder.timeline


class _Builder:
    """Builds the stretches of a run, step by step.

    Attributes:
        timeline: Stretches seen so far.
    """

    def __init__(self) -> None:
        self.timeline = PackingTimeline()
        self._fold = LogFold(self)
        self._open: dict[str, PackingPeriod] = {}
        self._last: dict[str, PackingChanged] = {}
        self._phases: dict[str, JobPhase] = {}
        self._classes: dict[str, str] = {}
        self._devices: dict[str, Device] = {}
        self._lanes: dict[int, str] = {}
        self._places: dict[str, str] = {}
        self._settings: dict[str, Setting] = {}

    def add(self, step: LogStep) -> None:
        for entry in (step.event, *step.commands, *step.packings):
            self._fold.take(entry)
            if isinstance(entry, PhaseBegan):
                self._phase_began(entry)

    def end(self, event: Event) -> None:
        """Add an event that the log lacks. The end of a job ends its stretch; what followed is not known."""
        self._fold.take(event)
        if isinstance(event, JobExited):
            for device in [device for device, stretch in self._open.items() if event.job in stretch.classes]:
                self._close(device, PackingEnding.LEFT)

    def cut_off(self) -> None:
        """End the open stretches: the rest of the session is not known."""
        for device in list(self._open):
            self._close(device, PackingEnding.CUT_OFF)

    def on_run_opened(self, event: RunOpened) -> None:
        """Begin a session, or go on in a segment. At the beginning of a session the guard has restored all settings."""
        if event.segment is None:
            self.cut_off()
            for of_session in (self._settings, self._last, self._phases):
                of_session.clear()
        self._devices = {device.name: device for device in event.devices}
        self.timeline.kept.update({each.packing: each.setting for each in event.known_settings})
        if event.segment is not None:  # earlier segments may be gone
            self._lanes = {number: device.name for number, device in event.lanes.items()}
            self._settings = dict(event.segment.settings)
            for job in event.segment.jobs:
                self._arrived(job.spec)
                self._phases[job.spec.name] = job.phase
                if job.lanes:
                    self._places[job.spec.name] = self._lanes[job.lanes[0]]

    def on_classes_known(self, event: ClassesKnown) -> None:
        self.timeline.kept.update({each.packing: each.setting for each in event.known_settings})

    def on_job_arrived(self, event: JobArrived) -> None:
        self._arrived(event.job)

    def _arrived(self, job: JobSpec) -> None:
        self._classes[job.name] = job.job_class
        if job.solo is not None:
            self.timeline.solos.setdefault(job.job_class, job.solo)

    def on_open_lane(self, command: OpenLane, _at_s: float) -> None:
        self._lanes[command.lane] = command.device

    def on_start_job(self, command: StartJob, _at_s: float) -> None:
        self._places[command.job] = self._lanes.get(command.lanes[0], "")
        self._phases.pop(command.job, None)

    def on_iterations_done(self, event: IterationsDone) -> None:
        self._progress(event.job, event.usage)

    def on_job_exited(self, event: JobExited) -> None:
        self._progress(event.job, event.usage)

    def _progress(self, job: str, usage: Usage) -> None:
        for stretch in self._open.values():
            if job in stretch.classes and all(setting == AS_FOUND for _, setting in stretch.settings):
                first, _ = stretch.progress.get(job, (usage, usage))
                stretch.progress[job] = first, usage

    def on_profiled(self, event: Profiled, command: Command | None) -> None:
        if isinstance(command, ProfileJob) and event.solo is not None:
            speed = self._speed(self._places.get(command.job, ""), command.job)
            self.timeline.solos[self._classes[command.job]] = event.solo.on_typical_device(speed)

    def on_done(self, event: Done, command: Command | None) -> None:
        if isinstance(command, ApplySetting):
            self._settings[command.device] = command.setting
            if (stretch := self._open.get(command.device)) is not None:
                stretch.settings.append((event.at_s, command.setting))

    def on_setting_measured(self, event: SettingMeasured, command: Command | None) -> None:
        if isinstance(command, MeasureSetting):
            stretch = self._open.get(command.device)
            if stretch is not None and set(command.jobs) == set(stretch.jobs):
                stretch.measurements.append((event.at_s, event.measurement))

    def on_setting_advised(self, event: SettingAdvised, command: Command | None) -> None:
        if event.over and isinstance(command, AskSetting):
            self.timeline.kept[command.packing] = event.setting
            stretch = self._open.get(command.device)
            if stretch is not None and stretch.packing == command.packing:
                stretch.searched = event.at_s, event.setting, event.note

    def _phase_began(self, event: PhaseBegan) -> None:
        """End and begin stretches: the same jobs are another packing now."""
        self._phases[event.job] = event.phase
        for change in [each for each in self._last.values() if event.job in each.jobs]:
            self.on_packing_changed(replace(change, ending=None))

    def on_packing_changed(self, change: PackingChanged) -> None:
        """End and begin stretches on a device if other jobs run there now; else note lanes and the forecast."""
        self._last[change.device] = change
        expected = dict(zip(change.jobs, change.speeds, strict=False))  # without a forecast: empty
        phases = {job: self._phases.get(job, JobPhase.TRAINS) for job in change.jobs}
        classes = {
            job: class_in(self._classes[job], phase) for job, phase in phases.items() if phase is not JobPhase.AWAY
        }
        stretch = self._open.get(change.device)
        if stretch is None or classes.items() != stretch.classes.items():
            if stretch is not None:
                self._close(change.device, change.ending)
            if not classes:
                return
            stretch = self._begin(change.device, classes)
        stretch.packing = replace(change, jobs={job: change.jobs[job] for job in classes}).packing(classes)
        stretch.in_training = change.packing(self._classes)
        if not stretch.measurements and set(phases.values()) == {JobPhase.TRAINS}:
            stretch.expected, stretch.expected_w = expected, change.power_w

    def _begin(self, device: str, classes: dict[str, str]) -> PackingPeriod:
        speeds = {job: self._speed(device, job) for job in classes}
        stretch = PackingPeriod(device, classes, (), self._fold.at_s, device_speeds=speeds)
        stretch.settings.append((self._fold.at_s, self._settings.get(device, AS_FOUND)))
        self._open[device] = stretch
        self.timeline.stretches.append(stretch)
        return stretch

    def _speed(self, device: str, job: str) -> float:
        """Relative speed of the class of a job on a device."""
        return self._devices[device].speed(self._classes[job]) if device in self._devices else 1.0

    def _close(self, device: str, ending: PackingEnding | None) -> None:
        stretch = self._open.pop(device)
        stretch.to_s, stretch.ending = self._fold.at_s, ending
