"""A job that is a thread of a shared process, as its turn sees it."""

from __future__ import annotations

from typing import Protocol


class Leaving(BaseException):
    """Unwinds a job that is a thread of a shared process. The job was asked to end, or needs a process of its own."""


class ThreadState(Protocol):
    """State of a job in a shared process, which is put aside while other jobs of the process have the turn.

    No code of such a job runs without the turn. So `out` is called right before the turn goes, and `back` right after
    it has come.
    """

    def out(self) -> None:
        """Put the state aside: the turn is about to be passed on."""
        ...

    def back(self) -> None:
        """Restore the state: the job has the turn."""
        ...

    def before_wake(self, slot: int | None) -> None:
        """Prepare for the wake-up of the job in a slot, which is about to be granted the turn."""
        ...

    def processor_s(self) -> float:
        """Processor time (s) of the job's turns so far."""
        ...

    def boundary(self) -> None:
        """Note that an iteration has ended.

        Raises:
            Leaving: If the job may not stay in the process.
        """
        ...

    def stop(self) -> None:
        """End the job, which was asked to end.

        Raises:
            Leaving: Unless the job ends by itself, as a service does that waits for requests.
        """
        ...
