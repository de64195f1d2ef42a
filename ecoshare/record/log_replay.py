"""Replays a run's log through a fresh core, which shows the known facts and the decisions at each moment.

Explanations of a decision come from this core, so they state the facts that the decision was made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

from ecoshare.core.commands import Command
from ecoshare.core.events import Event, RunOpened
from ecoshare.core.scheduler import Scheduler
from ecoshare.record.event_log import LogStep, steps
from ecoshare.record.log_entry import LogEntry


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
