"""Asks a queue about its state, once a second, and lets a caller ask it for changes: each call in a thread.

The threads are daemons. A queue that does not answer therefore keeps neither the view from drawing nor the command from
its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from pydantic import ValidationError

from ecoshare.errors import EcoshareError, UnfitEnvironment
from ecoshare.queue.queue_documents import JobStatus, QueueStatus

ENDED = 50
"""Number of jobs that have ended and are asked for."""

_EVERY_S = 1.0


class AskableQueue(Protocol):
    """Queue as the view needs it; `ecoshare.Queue` is one. Each method raises `EcoshareError`."""

    name: str

    def status(self, ended: int = 20) -> QueueStatus:
        """State of the queue, with so many jobs that have ended."""
        ...

    def cancel(self, *names: str, at_once: bool = False) -> object:
        """Cancel jobs."""
        ...

    def retry(self, *names: str) -> object:
        """Run jobs again."""
        ...

    def hold(self, name: str) -> JobStatus:
        """Keep a job that waits from starting."""
        ...

    def release(self, name: str) -> JobStatus:
        """Let a held job start again."""
        ...

    def prioritise(self, name: str, priority: int) -> JobStatus:
        """Give a job another priority."""
        ...

    def output(
        self, name: str, *, errors: bool = False, follow: bool = False, lines: int | None = None
    ) -> Iterator[bytes]:
        """Output of a job; with `follow`, until its end."""
        ...


class QueueWatch:
    """Asks a queue about its state until it is stopped."""

    def __init__(self, queue: AskableQueue, heard: Callable[[QueueStatus | EcoshareError], object]) -> None:
        """Watch that has not begun.

        Args:
            queue: The queue.
            heard: Gets each answer, or the reason why there is none; called in another thread.
        """
        self._queue, self._heard = queue, heard
        self._wake = threading.Event()
        self._over = False

    def begin(self) -> None:
        """Begin to ask."""
        in_background(self._run)

    def ask_now(self) -> None:
        """Ask now, because something has changed."""
        self._wake.set()

    def end(self) -> None:
        """Ask no more."""
        self._over = True
        self._wake.set()

    def _run(self) -> None:
        while not self._over:
            self._wake.clear()
            answer = asked(lambda: self._queue.status(ENDED))
            if not self._over:
                self._heard(answer)
            self._wake.wait(_EVERY_S)


def asked(call: Callable[[], QueueStatus]) -> QueueStatus | EcoshareError:
    """Answer of a queue, or the reason why there is none."""
    try:
        return call()
    except EcoshareError as error:
        return error
    except ValidationError:
        return UnfitEnvironment("the queue answers in a form that this version of ecoshare does not know")
    except Exception as error:  # anything else, too, must be said in the view, which would stand still otherwise
        return EcoshareError(f"the queue could not be asked: {type(error).__name__}: {error}")


def in_background(call: Callable[[], object]) -> None:
    """Call in a thread that does not keep the process from its end."""
    threading.Thread(target=call, daemon=True).start()
