"""Messages of the supervisor about attempts, as events of the core.

::

    Launched, NotLaunched ──► Done, Refused
    Ended                 ──► the rest of a trial's values, then JobExited
    the server has died   ──► JobExited of each attempt in progress: as its record says, else as lost
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ecoshare.core.events import Done, Event, JobExited, Refused
from ecoshare.lane.messages import Ended, Launched, Message, NotLaunched, NotMoved, Ready
from ecoshare.record.run_documents import recorded_end
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.attempts import Attempts
from ecoshare.runtime.children_watch import ChildrenWatch
from ecoshare.runtime.device_watch import DeviceWatch
from ecoshare.runtime.live_parking import LiveParking
from ecoshare.runtime.memory_release import MemoryRelease
from ecoshare.values.attempt import Outcome


@dataclass(frozen=True, slots=True)
class AttemptAnswers:
    """Hears what becomes of attempts, and tells the core.

    Attributes:
        folder: The run folder.
        attempts: Attempts in progress.
        memory: Starts that wait until other jobs have given memory back.
        children: Child processes of the jobs.
        watch: Watch over failing devices.
        parking: Parked jobs.
        over: Called with the name and the number of an attempt that has ended.
        tell: Reports an event to the core.
    """

    folder: RunFolder
    attempts: Attempts
    memory: MemoryRelease
    children: ChildrenWatch
    watch: DeviceWatch
    parking: LiveParking
    over: Callable[[str, int], None]
    tell: Callable[[Callable[..., Event]], None]

    def hear(self, message: Message) -> None:
        """Take a message of the supervisor."""
        match message:
            case Launched():
                self.tell(partial(Done, command=message.command))
            case NotLaunched():
                self.attempts.give_up(message.command)
                self.tell(partial(Refused, command=message.command, error=message.error))
            case NotMoved():
                self.attempts.moving.refused(message.command, message.error)
            case Ended():
                self.watch.ended(message, self.end)
            case Ready():
                pass

    def lost(self) -> None:
        """End all attempts in progress after the death of their server: as their records say, else as lost."""
        for own in list(self.attempts.live.values()):
            name = own.job.spec.name
            recorded = recorded_end(self.folder.job(name), own.attempt) if own.job.has_first_rank else None
            was_held = self.memory.give_up(name) is not None
            self.attempts.free(own)
            outcome = Outcome.MOVED_OUT if was_held else Outcome.LOST  # a start that was held has killed no process
            lost = Ended(name, own.attempt, outcome.value, None, "its supervisor died with it")
            self.end(recorded or lost)

    def end(self, ended: Ended) -> None:
        """Tell the core of the end of an attempt, unless it was told already."""
        own = self.attempts.live.get(ended.job)
        if own is not None:
            self.children.read_note(own)  # a short job ends before the first look
        usage = self.attempts.end(ended)
        if usage is None:
            return
        self.over(ended.job, ended.attempt)
        outcome, reason = self.watch.verdict(own, *self.parking.verdict(ended))
        self.tell(
            partial(
                JobExited,
                job=ended.job,
                attempt=ended.attempt,
                outcome=outcome,
                exit_code=ended.exit_code,
                reason=reason,
                usage=usage,
            )
        )
        self.attempts.moving.ended(ended.job)
