"""Groups waiting jobs by their reason, so that one job of a group is asked about for all.

::

    group    ORDER ─────────┬ WINDOW of c ──┬ ORDER ─────────────►    one member is asked about after each event
    job a    ├ joins        │               │             ├ leaves     a job gets the intervals when it leaves
    job b         ├ joins   │               │                   ├

Members differ only in the number of jobs before them. It is looked up in the order at the beginning of the interval.
Under a policy that packs, any of the first jobs of the queue may run next. Their reasons differ, so they have no group.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field, replace

from sortedcontainers import SortedList

from ecoshare.core.placement.packer import SEARCH_WIDTH
from ecoshare.core.reasons import MOST_NAMED, Explanation, Reason, ReasonKind, Reasons, names
from ecoshare.core.records import Job, Key
from ecoshare.core.scheduler import SchedulerView
from ecoshare.reporting.reason_intervals import SHORTEST_S, ReasonInterval, Story, alike


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
