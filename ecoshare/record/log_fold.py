"""The one pass over the log of a run: each entry goes to the methods of its kind, an answer with its command.

::

    recorded   event_log.read ──┐              ┌─► history.on_job_exited(event)
                                ├─► LogFold ───┼─► timeline.on_done(event, command)
    live       driver, display ─┘              └─► totals.on_start_job(command, at_s)

Summaries, explanations, the totals of a queue and the live display follow a run with this class. So they agree on what
a session is, what a segment takes over, and which command an answer belongs to.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any, cast, get_args

from ecoshare.base.segment import Segment
from ecoshare.core.commands import AskSampler, Command, DropJob, KillJob, LimitMemory, SetShares, StartJob
from ecoshare.core.events import Event, JobArrived, RunOpened
from ecoshare.record.packing_record import PackingChanged

LogEntry = Event | Command | PackingChanged
"""Event of the core, command of the core, or record beside them, which the core does not read."""

_KINDS = {re.sub(r"(?<=.)(?=[A-Z])", "_", each.__name__).lower(): each for each in get_args(LogEntry)}
_EVENTS, _COMMANDS = frozenset(get_args(Event)), frozenset(get_args(Command))
_ANSWERS = frozenset(each for each in _EVENTS if "command" in each.__slots__)
_UNANSWERED = frozenset((DropJob, KillJob, SetShares))
"""Commands that no answer names."""


class LogFold:
    """Passes the entries of a log on, one by one.

    A part has a method for each kind of entry that it needs, which is named after it::

        on_job_exited(event)            an event
        on_done(event, command)         an answer, and its command; None if that is not known
        on_start_job(command, at_s)     a command, and the time (s) of the event that it follows from
        on_packing_changed(change)      a record

    Attributes:
        at_s: Time (s) of the last event; while an event is passed on, of the one before it.
    """

    def __init__(self, *parts: Any) -> None:
        """Fold for these parts; each entry goes to them in their order.

        Raises:
            TypeError: A part has a method for a kind of entry that does not exist.
        """
        self.at_s = 0.0
        self._asked: dict[int, Command] = {}
        self._methods: defaultdict[type, list[Callable[..., None]]] = defaultdict(list)
        for part in parts:
            for name in (name for name in dir(type(part)) if name.startswith("on_")):
                if (kind := _KINDS.get(name.removeprefix("on_"))) is None:
                    raise TypeError(f"{type(part).__name__}.{name}: no entry of a log has this name")
                self._methods[kind].append(getattr(part, name))

    def take(self, entry: LogEntry) -> None:
        """Pass the next entry on."""
        kind, own, more = type(entry), cast(Any, entry), tuple[Any, ...]()
        if kind in _COMMANDS:
            more = (self.at_s,)
            if kind not in _UNANSWERED:
                self._asked[own.id] = own
        elif kind in _ANSWERS:
            more = (self._asked.pop(own.command, None),)
        elif kind is JobArrived and own.answers:
            self._asked.pop(own.answers, None)
        elif kind is RunOpened:
            self._asked = {} if own.segment is None else unanswered(own.segment)
        for method in self._methods.get(kind, ()):
            method(entry, *more)
        if kind in _EVENTS:
            self.at_s = max(self.at_s, own.at_s)


def unanswered(segment: Segment) -> dict[int, Command]:
    """Commands that had no answer when a segment began, by their ids."""
    found: dict[int, Command] = {}
    for sweep in segment.sweeps:
        found.update({id: AskSampler(id, sweep.spec.name, number) for id, number in sweep.asked})
    attempts = {each.spec.name: each.attempt for each in segment.jobs if each.has_attempt}
    for job in segment.jobs:
        if job.command is not None:
            found[job.command] = StartJob.carried(job)
    for id, name, cap_bytes in segment.limits:
        found[id] = LimitMemory(id, name, attempts.get(name, 0), cap_bytes)
    return found
