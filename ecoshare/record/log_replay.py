"""A run's log, fed to a fresh core once more: what was known and decided at each moment.

Whoever asks for reasons asks this core, so that what is said of a decision is what it was made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

from ecoshare.core.commands import Command
from ecoshare.core.events import Event, RunOpened
from ecoshare.core.scheduler import Scheduler
from ecoshare.record.event_log import steps

_Step = tuple[Event, list[Command]]


@dataclass(frozen=True, slots=True)
class ReplayMoment:
    """An event, and what followed from it.

    Attributes:
        core: As it is after that; the same object at every moment of a session.
        next_s: When the next event of the session came; None after the last.
    """

    event: Event
    commands: tuple[Command, ...]
    core: Scheduler
    next_s: float | None


class LogReplay:
    """The moments of a log, session by session: every `RunOpened` begins with a fresh core.

    Where this core decides otherwise than the one that ran, or cannot follow, the rest of that session is left out: a
    log of another version of ecoshare, or one with events that were not written in their order.

    Attributes:
        differs_s: When that was first so; None where it never was.
        is_lost: Whether it is so at the end of the log.
    """

    def __init__(self, entries: Iterable[Event | Command]) -> None:
        """Nothing is replayed yet.

        Args:
            entries: Content of events.jsonl.
        """
        self._entries = entries
        self.differs_s: float | None = None
        self.is_lost = False

    def __iter__(self) -> Iterator[ReplayMoment]:
        core = Scheduler()
        for here, after in pairwise(chain[_Step | None](steps(self._entries), [None])):
            assert here is not None, "only the last one is none"
            event, logged = here
            if isinstance(event, RunOpened):
                core, self.is_lost = Scheduler(), False
            if self.is_lost:
                continue
            now = _handled(core, event)
            # Of the last one before a kill not all commands need to have been written.
            is_last = after is None or isinstance(after[0], RunOpened)
            known = now if now is None or not is_last else now[: len(logged)]
            if known != logged:
                self.is_lost = True
                self.differs_s = event.at_s if self.differs_s is None else self.differs_s
                continue
            yield ReplayMoment(event, tuple(logged), core, None if after is None or is_last else after[0].at_s)


def _handled(core: Scheduler, event: Event) -> list[Command] | None:
    """What the core makes of an event; None where it cannot follow."""
    try:
        return core.handle(event)
    except Exception:  # whatever a log that this core did not make leads to: there is no more to be had of it
        return None
