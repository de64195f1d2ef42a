"""Why jobs waited, shared a device or ran alone: the decisions of a run, replayed from its log.

The events of the log are fed to a fresh core. After each burst of events the core is asked for the state of each job
and its reason. Equal reasons in succession make one interval. Jobs that run or may run next are asked about one by one,
all other waiting jobs in groups. The time thus grows with the events, not with events times jobs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from sortedcontainers import SortedList

from ecoshare.base.attempt import Outcome
from ecoshare.base.documents import collector_paused
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.measurement import JobPhase
from ecoshare.base.plural import counted
from ecoshare.core.commands import Command, KillJob, MoveJob, ParkJob, ProfileJob, SetCaching, StartJob
from ecoshare.core.events import (
    CancelRequested,
    IterationsDone,
    JobArrived,
    JobExited,
    PhaseBegan,
    PriorityChanged,
    Profiled,
    Refused,
    RetryRequested,
    RunOpened,
    TargetMissed,
)
from ecoshare.core.placement.packer import SEARCH_WIDTH
from ecoshare.core.reasons import MOST_NAMED, Explanation, Reason, ReasonKind, Reasons, names
from ecoshare.core.records import Job, JobState, Key, Lane
from ecoshare.core.scheduler import Scheduler, SchedulerView
from ecoshare.core.settings.power_budget import PowerBudget
from ecoshare.record.accounts.turn_account import TurnAccount
from ecoshare.record.log_fold import LogFold
from ecoshare.record.packing_timeline import LogReplay, PackingTimeline, ReplayMoment
from ecoshare.record.run_history import ProfilingSpan, RunHistory
from ecoshare.reporting.reason_words import SHORTEST_S, ReasonInterval, Story, alike, joined
from ecoshare.reporting.tables.device_table import gang_words


class Line:
    """Waiting jobs in the order of the policy, with the methods that `core.reasons` needs."""

    def __init__(self) -> None:
        """Start with no waiting job."""
        self._keys: SortedList = SortedList()
        self._jobs: dict[Key, Job] = {}
        self._key_of: dict[Job, Key] = {}

    def update(self, job: Job) -> None:
        """Add, remove or reorder a job, as its present state demands."""
        if (key := self._key_of.pop(job, None)) is not None:
            self._keys.remove(key)
            del self._jobs[key]
        if job.state.waits:
            self._key_of[job] = job.place
            self._jobs[job.place] = job
            self._keys.add(job.place)

    def first(self, count: int) -> list[Job]:
        """The first `count` jobs, or all if there are fewer."""
        return [self._jobs[key] for key in self._keys[:count]]

    def place(self, job: Job) -> int:
        """Number of jobs before `job`."""
        return int(self._keys.bisect_left(self._key_of[job]))

    def keys(self) -> list[Key]:
        """Sort keys of all jobs, in order."""
        return list(self._keys)

    def key(self, job: Job) -> Key:
        """Sort key of `job`."""
        return self._key_of[job]

    def __contains__(self, job: Job) -> bool:
        return job in self._key_of


@dataclass(slots=True)
class _Entry:
    """One reason of a group, with its time span.

    Attributes:
        interval: Interval that all members share; one object in all stories.
        keys: Sort keys of all jobs that waited when the interval began, in order. None if the reason is not
            `ReasonKind.ORDER`, or if the interval is too short to be reported.
        first: Names of the first jobs of that order.
    """

    interval: ReasonInterval
    keys: list[Key] | None = None
    first: tuple[str, ...] = ()

    def of(self, key: Key) -> ReasonInterval:
        """Interval of the member with this sort key."""
        if self.keys is None:
            return self.interval
        ahead = bisect_left(self.keys, key)
        because = Explanation(ReasonKind.ORDER, self.first[: min(ahead, MOST_NAMED)], ahead=ahead)
        return ReasonInterval(self.interval.from_s, replace(self.interval.reason, because=because), self.interval.to_s)


@dataclass(slots=True)
class _Group:
    """Jobs that wait for the same reason.

    Attributes:
        reason: Present reason, with the figures from its beginning.
        entries: Reasons after the one with which the group began.
        members: Sort key of each member, and the number of entries when it joined.
    """

    reason: Reason
    entries: list[_Entry] = field(default_factory=list)
    members: dict[Job, tuple[Key, int]] = field(default_factory=dict)

    def look(self, reasons: Reasons, at_s: float, line: Line) -> None:
        """Ask for the reason of one member; if it has changed, begin a new entry for all members."""
        now = reasons.of(next(iter(self.members)))
        assert now is not None, "members wait"
        if alike(self.reason, now):
            return
        if self.entries:
            self._end(self.entries[-1], at_s)
        self.reason = now
        is_order = now.because is not None and now.because.why is ReasonKind.ORDER
        keys, first = (line.keys(), names(line.first(MOST_NAMED))) if is_order else (None, ())
        self.entries.append(_Entry(ReasonInterval(at_s, now), keys, first))

    @staticmethod
    def _end(entry: _Entry, at_s: float) -> None:
        entry.interval.to_s = at_s
        if at_s - entry.interval.from_s < SHORTEST_S:
            entry.keys = None

    def leave(self, job: Job, story: Story) -> None:
        """Remove a member and write its intervals since it joined into its story; the last interval stays open."""
        key, joined = self.members.pop(job)
        if joined == len(self.entries):
            return
        story.intervals[-1].to_s = self.entries[joined].interval.from_s
        story.intervals += [entry.of(key) for entry in self.entries[joined:]]
        last = story.intervals[-1]
        story.intervals[-1] = ReasonInterval(last.from_s, last.reason)


class Queued:
    """Follows the queue of a scheduler and writes the reasons of waiting jobs into their stories.

    ::

        group    ORDER ─────────┬ WINDOW of c ──┬ ORDER ─────────────►    one member is asked about after each event
        job a    ├ joins        │               │             ├ leaves     a job gets the intervals when it leaves
        job b         ├ joins   │               │                   ├

    Members differ only in the number of jobs before them. It is looked up in the order at the beginning of the
    interval. Under a policy that packs, any of the first jobs of the queue may run next. Their reasons differ, so they
    have no group.

    Attributes:
        line: Waiting jobs, in order.
    """

    def __init__(self, view: SchedulerView, stories: dict[str, Story]) -> None:
        """Follow the queue of a run that was just opened.

        Args:
            view: View of the scheduler; its queue reports changes to `touch`.
            stories: Story of each job by its name; written when the job leaves its group.
        """
        self.line = Line()
        self._stories = stories
        self._heard: dict[Job, None] = {}
        self._changed: dict[Job, None] = {}
        self._again: dict[Job, None] = {}
        self._near: dict[Job, None] = {}
        self._groups: dict[tuple[object, ...], _Group] = {}
        self._key_of: dict[Job, tuple[object, ...]] = {}
        self._by_class: defaultdict[str, dict[Job, None]] = defaultdict(dict)
        view.placement.waiting.heard = self.touch

    def touch(self, job: Job) -> None:
        """Mark a job that was added or removed, or that an event named."""
        self._heard[job] = self._changed[job] = None

    def changed(self) -> list[Job]:
        """Jobs that were touched since the last call."""
        changed, self._changed = self._changed, {}
        return list(changed)

    def update(self) -> None:
        """Bring `line` up to date with the touched jobs."""
        for job in self._heard:
            self.line.update(job)
        self._again, self._heard = self._heard, {}

    def single(self, view: SchedulerView, reasons: Reasons, at_s: float) -> list[Job]:
        """Jobs to ask about one by one after an event; the groups follow the reasons of all other jobs."""
        near = self._near_now(view)
        again = {**self._near, **near, **self._again}
        for job in self._again:
            again |= self._reknown(job.spec.job_class, view)
        for job in again:
            self._leave(job)
        for group in self._groups.values():
            group.look(reasons, at_s, self.line)
        self._near = near
        return list(again)

    def join(self, job: Job, reason: Reason, view: SchedulerView) -> None:
        """Put a job that was asked about one by one into its group, if it waits and is not near the front."""
        if job not in self.line or job in self._near:
            return
        key = self._key(job, view)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(reason)
        group.members[job] = self.line.key(job), len(group.entries)
        self._key_of[job] = key
        self._by_class[job.spec.job_class][job] = None

    def close(self) -> None:
        """Write the intervals of all members."""
        for job in list(self._key_of):
            self._leave(job)

    def _near_now(self, view: SchedulerView) -> dict[Job, None]:
        """Jobs that have a place in a lane, and jobs that may run next."""
        near = {job: None for lane in view.lane_index.lanes.values() for job in lane.jobs.values()}
        if view.placement.groups is not None:
            near |= dict.fromkeys(self.line.first(SEARCH_WIDTH))
        return near

    @staticmethod
    def _key(job: Job, view: SchedulerView) -> tuple[object, ...]:
        """Key of a waiting job's group: everything, except its place, that decides its reason."""
        parked = None if job.parked_in is None else job.number  # each is held up by its own lane
        known = (job.spec.gpus, job.is_suspect) if view.placement.groups is not None else view.fit.known(job)
        return (*known, parked)

    def _reknown(self, job_class: str, view: SchedulerView) -> dict[Job, None]:
        """Members of a class that belong to another group, since more is known of the class now; empty if none do."""
        members = self._by_class.get(job_class, {})
        job = next(iter(members), None)
        return dict(members) if job is not None and self._key(job, view) != self._key_of[job] else {}

    def _leave(self, job: Job) -> None:
        if (key := self._key_of.pop(job, None)) is None:
            return
        del self._by_class[job.spec.job_class][job]
        self._groups[key].leave(job, self._stories[job.spec.name])
        if not self._groups[key].members:
            del self._groups[key]


_AT_ONCE_S = 0.05
"""Events closer to each other than this (s) are one burst, and the last one shows the outcome of all."""


@dataclass(slots=True)
class RunExplanation:
    """Everything that is known about the decisions of a run.

    Attributes:
        policy: Name of the policy; empty if nothing was decided.
        stories: Story of each job by its name, in the order of arrival.
        timeline: Packings of each device over time.
        windows: Profiling windows.
        account: Turns that the jobs really had; None if they are not known.
        end_s: Time (s) of the last event that the replay reached.
        services: Names of the jobs that are services.
        differs_s: Time (s) from which this core decides differently from the core of the run; None if it never does.
    """

    policy: str = ""
    stories: dict[str, Story] = field(default_factory=dict)
    timeline: PackingTimeline = field(default_factory=PackingTimeline)
    windows: list[ProfilingSpan] = field(default_factory=list)
    account: TurnAccount | None = None
    end_s: float = 0.0
    services: set[str] = field(default_factory=set)
    differs_s: float | None = None


@collector_paused()
def explain(history: RunHistory, only: str | None = None) -> RunExplanation:
    """The decisions of a run, as far as its log goes.

    Args:
        history: History of the run.
        only: Name of one job. Reasons of other jobs are left out, which is faster. None for all jobs.
    """
    replay, listener = LogReplay(history.entries), _Listener(only)
    for moment in replay:
        listener.hear(moment)
    explained = listener.finished(replay)
    explained.timeline = history.packings()
    for story in explained.stories.values():
        story.intervals = joined(story.intervals)
    return explained


class _Listener:
    """Collects intervals, remarks and windows from the moments of a run."""

    def __init__(self, only: str | None) -> None:
        self.explained = RunExplanation()
        self._only = only
        self._fold = LogFold(self)
        self._moment: ReplayMoment | None = None
        self._queued: Queued | None = None
        self._windows: dict[str, ProfilingSpan] = {}
        self._keepers: set[str] = set()
        self._short: set[str] = set()  # jobs with slowdown limits that a power budget does not suffice for
        self._displaced: set[str] = set()  # jobs that lost their device and have not started again
        self._emptying: set[str] = set()  # jobs of which it was said that they empty their caches
        self._since_s: float | None = None

    def hear(self, moment: ReplayMoment) -> None:
        self._moment, event, known = moment, moment.event, len(self._keepers)
        for entry in (event, *moment.commands):
            self._fold.take(entry)
        self._touch(event.job.name if isinstance(event, JobArrived) else getattr(event, "job", None))
        self._line.changed()
        self.explained.end_s = self._fold.at_s
        if moment.commands:
            self._falls_short()
        decides = moment.commands or len(self._keepers) != known
        if not isinstance(event, IterationsDone) or decides:  # other progress reports decide nothing
            self._since_s = event.at_s if self._since_s is None else self._since_s
        if self._since_s is not None and not self._goes_on(moment, self._since_s):
            self._since_s = None
            self._note(moment)

    @property
    def _core(self) -> Scheduler:
        assert self._moment is not None, "a moment is heard"
        return self._moment.core

    @property
    def _line(self) -> Queued:
        assert self._queued is not None, "a session begins with RunOpened"
        return self._queued

    @staticmethod
    def _goes_on(moment: ReplayMoment, since_s: float) -> bool:
        """Whether the next event belongs to the same burst as this one."""
        at_s, next_s = moment.event.at_s, moment.next_s
        return next_s is not None and next_s - at_s < _AT_ONCE_S and at_s - since_s < SHORTEST_S

    def _touch(self, name: str | None) -> None:
        if name in self._core.jobs:
            self._line.touch(self._core.jobs[name])

    def finished(self, replay: LogReplay) -> RunExplanation:
        """The explanation, with the windows that are still open."""
        if self._queued is not None:
            self._queued.close()
        self.explained.differs_s = replay.differs_s
        self.explained.windows += self._windows.values()
        if replay.is_lost:
            self._cut_off()
        return self.explained

    def _cut_off(self) -> list[Story]:
        """End open intervals at the last known time, since the log has no end for them; return their stories."""
        going = [story for story in self.explained.stories.values() if story.intervals and not story.intervals[-1].to_s]
        for story in going:
            story.intervals[-1].to_s = self.explained.end_s
        return going

    def on_run_opened(self, event: RunOpened) -> None:
        """Begin a session. If the last session was cut off, its log has no end: end its intervals and windows here."""
        core = self._core
        if self._queued is not None:
            self._queued.close()
        self._queued = Queued(core.view, self.explained.stories)
        self.explained.policy = event.config.policy
        if event.segment is None:
            for story in self._cut_off():
                story.remarks.append((self.explained.end_s, "cut off with the run, which was resumed later"))
            self.explained.windows += self._windows.values()
            self._windows.clear()
            return
        for job in core.jobs.values():  # the same jobs, by other objects
            self._arrived(job.spec)
            self._queued.touch(job)

    def on_job_arrived(self, event: JobArrived) -> None:
        self._arrived(event.job)

    def _arrived(self, job: JobSpec) -> None:
        self.explained.stories.setdefault(job.name, Story(job.name, job.job_class))
        if job.service is not None:
            self.explained.services.add(job.name)

    def on_start_job(self, command: StartJob, at_s: float) -> None:
        if len(command.lanes) > 1:
            self._say(command.job, at_s, f"starts on {_gang_words(self._core, command)}")
        if command.job in self._displaced:
            self._displaced.remove(command.job)
            devices = dict.fromkeys(self._core.lanes[lane].device.name for lane in command.lanes)
            self._say(command.job, at_s, f"was started again on {', '.join(devices)}")
        if (lane := self._core.lanes[command.lanes[0]]).empties:
            self._empties(command.job, lane.device.name, at_s)

    def on_set_caching(self, command: SetCaching, at_s: float) -> None:
        """Note for each job of a device that it empties its cache from now on, or that it keeps it again."""
        here = {name for lane in self._core.view.lane_index.devices[command.device] for name in self._names(lane)}
        if not command.is_kept:
            for job in sorted(here):
                self._empties(job, command.device, at_s)
            return
        for job in sorted(here & self._emptying):
            self._say(job, at_s, "keeps its cache at hand-overs again")
        self._emptying -= here

    @staticmethod
    def _names(lane: Lane) -> Iterator[str]:
        return (job.spec.name for job in lane.jobs.values())

    def _empties(self, job: str, device: str, at_s: float) -> None:
        """Note, once for each such time, that a job empties its cache, and so what follows for its turns."""
        if job in self._emptying:
            return
        self._emptying.add(job)
        words = f"empties its cache at hand-overs, since {device} has no memory for the caches of all jobs"
        self._say(job, at_s, f"{words}: no turn is cut inside an iteration")

    def on_kill_job(self, command: KillJob, at_s: float) -> None:
        if command.reason:
            self._say(command.job, at_s, f"was stopped: {command.reason}")

    def on_refused(self, event: Refused, command: Command | None) -> None:
        if isinstance(command, ParkJob):
            self._say(command.job, event.at_s, f"was not parked: {event.error}")
            return
        if isinstance(command, StartJob):
            self._touch(command.job)
        for job in self._line.changed():
            if job.history and job.history[-1].at_s == event.at_s and job.history[-1].cause == event.error:
                self._say(job.spec.name, event.at_s, f"could not be started: {event.error}")

    def on_profiled(self, event: Profiled, command: Command | None) -> None:
        if isinstance(command, ProfileJob):
            self._touch(command.job)
            if event.error:
                self._say(command.job, event.at_s, f"its measurement came to nothing: {event.error}")

    def on_iterations_done(self, event: IterationsDone) -> None:
        self._keeps(event)

    def on_job_exited(self, event: JobExited) -> None:
        self._keeps(event)
        self._keepers.discard(event.job)
        self._emptying.discard(event.job)
        if event.outcome is Outcome.DEVICE_FAILED:
            self._displaced.add(event.job)
        if event.outcome is Outcome.COMPLETED:
            self._say(event.job, event.at_s, "completed")
            return
        then = "; it starts again" if self._core.jobs[event.job].state is JobState.QUEUED else ""
        reason = f": {event.reason}" if event.reason else ""
        self._say(event.job, event.at_s, f"attempt {event.attempt} ended ({event.outcome.value}){reason}{then}")

    def _keeps(self, event: IterationsDone | JobExited) -> None:
        """Note as a remark that an attempt keeps its lane, once for each attempt."""
        if event.usage.keeps_lane and event.job not in self._keepers:
            self._keepers.add(event.job)
            self._say(event.job, event.at_s, f"keeps its lane to its end: {event.usage.keeps_lane}")

    def on_target_missed(self, event: TargetMissed) -> None:
        """Note that a service has missed its target, and which jobs leave its lane for that."""
        assert self._moment is not None, "a moment is heard"
        missed = f"{event.missed} of {counted(event.requests, 'request')} were late, failed or were refused"
        self._say(event.job, event.at_s, f"missed its target for a minute: {missed}")
        for command in self._moment.commands:
            if isinstance(command, MoveJob):
                words = f"moves to lane {command.lane}, since {event.job} missed its target beside it"
                self._say(command.job, event.at_s, words)

    def on_phase_began(self, event: PhaseBegan) -> None:
        self._say(event.job, event.at_s, _PHASES[event.phase])

    def on_cancel_requested(self, event: CancelRequested) -> None:
        self.explained.stories.setdefault(event.job, Story(event.job, ""))  # it may never have arrived
        self._say(event.job, event.at_s, f"was cancelled: {event.reason}")

    def on_retry_requested(self, event: RetryRequested) -> None:
        self._say(event.job, event.at_s, "runs again, since the user asked for it")

    def on_priority_changed(self, event: PriorityChanged) -> None:
        self._say(event.job, event.at_s, f"has priority {event.priority} from now on")

    def _note(self, moment: ReplayMoment) -> None:
        """Note the present reasons of the jobs, and the windows that are open."""
        view, at_s = moment.core.view, moment.event.at_s
        reasons = Reasons(view, at_s, self._line.line)
        self._line.update()
        if self._only is None:
            for job in self._line.single(view, reasons, at_s):
                reason = reasons.of(job)
                self._add(self.explained.stories[job.spec.name], at_s, reason)
                if reason is not None:
                    self._line.join(job, reason, view)
        elif (only := moment.core.jobs.get(self._only)) is not None:
            self._add(self.explained.stories[self._only], at_s, reasons.of(only))
        measured = {device: reasons.measured(device) for device in view.lane_index.devices}
        self._follow_windows({device: job.spec.name for device, job in measured.items() if job is not None}, at_s)

    def _follow_windows(self, now: dict[str, str], at_s: float) -> None:
        for device, window in list(self._windows.items()):
            if now.get(device) != window.job:
                self.explained.windows.append(replace(window, to_s=at_s))
                del self._windows[device]
        for device, job in now.items():
            if device not in self._windows:
                self._windows[device] = ProfilingSpan(job, at_s, device=device)

    @staticmethod
    def _add(story: Story, at_s: float, reason: Reason | None) -> None:
        last = story.intervals[-1] if story.intervals else None
        if last is not None and last.to_s is None:
            if reason is not None and alike(last.reason, reason):
                return
            last.to_s = at_s
        if reason is not None:
            story.intervals.append(ReasonInterval(at_s, reason))

    def _falls_short(self) -> None:
        """Note as a remark, once for each job, that a power budget does not suffice for its slowdown limit."""
        settings = self._core.view.settings
        for device, needed_w in settings.short_w.items() if isinstance(settings, PowerBudget) else ():
            here = [job for lane in self._core.view.lane_index.devices[device] for job in lane.jobs.values()]
            for job in here:
                if job.spec.slowdown_limit is not None and job.spec.name not in self._short:
                    self._short.add(job.spec.name)
                    words = f"the slowdown limits on {device} need a power limit of {needed_w:g} W, and"
                    self._say(job.spec.name, self._fold.at_s, f"{words} the power budget does not suffice for that")

    def _say(self, job: str, at_s: float, words: str) -> None:
        self.explained.stories[job].remarks.append((at_s, words))


_PHASES = {
    JobPhase.TRAINS: "trains again",
    JobPhase.EVALUATES: "evaluates: the setting that is known for that counts, if there is one",
    JobPhase.AWAY: "is away: it does not count for the setting of its device",
}
"""Words for a job that is in another phase."""


def _gang_words(core: Scheduler, start: StartJob) -> str:
    """Devices of a gang that starts, and how they are linked."""
    devices = {core.lanes[number].device.name: core.lanes[number].device for number in start.lanes}
    return gang_words(list(devices), {name: dict(device.links) for name, device in devices.items()})
