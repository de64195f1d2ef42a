"""A server with a scheduler of its own, which sleeps while other jobs have the turn of its lane.

::

    requests    ▼     ▼▼                              ▼
    server       ██████████ ─────── ▒▒ z z z z z z z z ▒▒███████       ▒▒ is put to sleep, and woken
    turn        ════════════════════════               ══════════      other jobs have the turn in between
                           │       │ another job must have the turn
                           │ the last request is answered: the turn is kept, since no other job wants it

One thread takes and leaves the turn, and calls the server. The threads of requests wait for it at the gate. The gate is
closed as soon as another job must have the turn. The requests inside are then answered to their end, since nothing can
interrupt them.
"""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from http.client import HTTPConnection, HTTPException
from typing import Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from ecoshare.lane.serving.batch_worker import one_line

_LOOK_S = 0.1
"""Time (s) between two looks at a server that is awake: whether another job must have the turn."""

_TRIES = 3
"""Calls that are made in a row to put the server to sleep, before it is given up."""

_BETWEEN_TRIES_S = 1.0

_DECAY = 0.95
"""Factor by which the longest answer of late shrinks with each answer, as `lane.turn` has it for iterations."""


class DeviceTurn(Protocol):
    """Turn of a lane, as one thread at a time uses it."""

    @property
    def is_due(self) -> bool:
        """Whether another job must have the turn."""
        ...

    def take(self, due_s: float, answer_s: float) -> None:
        """Wait for the turn.

        Args:
            due_s: Time (s) on the monotonic clock at which the first answer is due; infinity for none.
            answer_s: Time (s) that the answer takes at most, a call to wake the server included.
        """
        ...

    def answered(self) -> None:
        """Count an answer."""
        ...

    def leave(self) -> None:
        """Give up the turn. The server sleeps."""
        ...


class ServerStarting(Exception):
    """The server does not listen yet."""


class NotAwake(Exception):
    """The server could not be woken."""


class CallFailed(Exception):
    """A call that puts the server to sleep or wakes it has failed. The text is one line."""


class _Activity(Enum):
    STARTING = "starting"
    """It does not listen yet. It works on the device without the turn, as any service that loads its model."""
    AWAKE = "awake"
    ASLEEP = "asleep"
    UNSURE = "unsure"
    """A call has failed. It counts as awake when the turn is given up, and as asleep when a request comes."""


@dataclass(eq=False, slots=True)
class _Waiting:
    """Request at the gate.

    Attributes:
        due_s: Time (s) at which its answer is due.
        is_let_in: Whether it may go to the server.
        failure: Reason why it may not; empty as long as it waits, or if it may.
    """

    due_s: float
    is_let_in: bool = False
    failure: str = ""


class SleepingServer:
    """Server on this machine that is awake only with the turn."""

    def __init__(
        self,
        turn: DeviceTurn,
        sleep_url: str,
        wake_url: str,
        say: Callable[[str], None],
        give_up: Callable[[str], None],
        looked: Callable[[bool], None] = lambda _: None,
        within_s: float = 60.0,
    ) -> None:
        """Server that starts.

        Args:
            turn: Turn of the lane. Nothing else may use it.
            sleep_url: URL that puts the server to sleep.
            wake_url: URL that wakes it.
            say: Tells the user of a failure, in one line.
            give_up: Ends the server, since it does not sleep. It gets the reason, one line.
            looked: Called some ten times a second while the server has the turn, and after that; it gets whether the
                server sleeps.
            within_s: Longest time (s) of a call to the server without a byte of its answer.
        """
        self._turn, self._say, self._give_up, self._looked = turn, say, give_up, looked
        self._sleep, self._wake = urlsplit(sleep_url), urlsplit(wake_url)
        self._within_s = within_s
        self._changed = threading.Condition()
        self._activity = _Activity.STARTING
        self._waiting: list[_Waiting] = []
        self._inside = 0
        self._sleep_s = self._wake_s = self._longest_s = 0.0

    @property
    def origin(self) -> tuple[str, int]:
        """Host and port at which the server listens."""
        return self._sleep.hostname or "", self._sleep.port or 80

    def is_call(self, target: str) -> bool:
        """Whether a client asks for one of the two URLs that only ecoshare may call.

        Args:
            target: Path of the request, with its query.
        """
        return unquote(target.partition("?")[0]) in (self._sleep.path or "/", self._wake.path or "/")

    @contextmanager
    def answering(self, due_s: float) -> Iterator[None]:
        """Context manager in which the server is awake with the turn, for one request.

        Args:
            due_s: Time (s) on the monotonic clock at which the answer is due.

        Raises:
            ServerStarting: The server does not listen yet.
            NotAwake: The server could not be woken.
        """
        own = _Waiting(due_s)
        with self._changed:
            if self._activity is _Activity.STARTING:
                raise ServerStarting
            self._waiting.append(own)
            self._changed.notify_all()
            self._changed.wait_for(lambda: own.is_let_in or own.failure)
        if own.failure:
            raise NotAwake(own.failure)
        from_s = time.monotonic()
        try:
            yield
        finally:
            self._left(time.monotonic() - from_s)

    def keep(self) -> None:
        """Keep the server awake or asleep as the lane has it. Return if it was given up, with the turn."""
        self._wait_for_start()
        due_s = math.inf
        while True:
            self._turn.take(due_s, self._wake_s + self._longest_s)
            self._serve()
            if not self._is_asleep():
                return
            self._turn.leave()
            self._looked(True)
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                due_s = min(each.due_s for each in self._waiting)

    def _wait_for_start(self) -> None:
        while True:
            with suppress(OSError):
                socket.create_connection(self.origin, self._within_s).close()
                break
            time.sleep(_LOOK_S)
        with self._changed:
            self._activity = _Activity.AWAKE

    def _serve(self) -> None:
        """Let requests in until another job must have the turn. Then the server sleeps, unless it was given up."""
        self._open()
        from_s = time.monotonic()
        # A turn that is shorter than the calls around it would mostly pay for them.
        while not (self._turn.is_due and time.monotonic() - from_s >= self._sleep_s + self._wake_s):
            with self._changed:
                if not self._waiting:
                    self._changed.wait(_LOOK_S)
            self._open()
            self._looked(False)
        with self._changed:
            self._changed.wait_for(lambda: not self._inside)
        self._put_to_sleep()

    def _open(self) -> None:
        """Let the requests in that wait, and wake the server first if it may sleep."""
        with self._changed:
            if not self._waiting:
                return
            is_awake = self._activity is _Activity.AWAKE
        failure = "" if is_awake else self._not_woken()
        with self._changed:
            for each in self._waiting:
                each.is_let_in, each.failure = not failure, failure
            self._inside += 0 if failure else len(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()

    def _left(self, took_s: float) -> None:
        with self._changed:
            self._inside -= 1
            self._longest_s = max(took_s, _DECAY * self._longest_s)
            self._turn.answered()
            if not self._inside:
                self._changed.notify_all()

    def _not_woken(self) -> str:
        """Wake the server. Return the failure in words; empty if it is awake."""
        try:
            self._wake_s = self._called(self._wake)
        except CallFailed as error:
            self._activity = _Activity.UNSURE
            why = f"the server does not wake: {error}"
            self._say(why)
            return why
        self._activity = _Activity.AWAKE
        return ""

    def _put_to_sleep(self) -> None:
        """Put the server to sleep. If it does not, end it: awake, it would have the memory of the jobs that come."""
        for left in reversed(range(_TRIES)):
            try:
                self._sleep_s = self._called(self._sleep)
            except CallFailed as error:
                self._activity = _Activity.UNSURE
                why = f"the server does not sleep: {error}"
                if not left:
                    self._give_up(why)
                    return
                self._say(f"{why}; it is tried again")
                time.sleep(_BETWEEN_TRIES_S)
            else:
                self._activity = _Activity.ASLEEP
                return

    def _is_asleep(self) -> bool:
        return self._activity is _Activity.ASLEEP

    def _called(self, url: SplitResult) -> float:
        """Send a POST without a body. Return the time (s) that it took.

        Raises:
            CallFailed: It was not answered in time, or with a status other than 2xx.
        """
        from_s = time.monotonic()
        connection = HTTPConnection(*self.origin, timeout=self._within_s)
        shown = f"POST {url.geturl()}"
        try:
            connection.request("POST", url._replace(scheme="", netloc="", path=url.path or "/").geturl())
            answer = connection.getresponse()
            answer.read()
        except TimeoutError:
            raise CallFailed(f"{shown}: no answer within {self._within_s:g} s") from None
        except (OSError, HTTPException) as error:
            raise CallFailed(f"{shown}: {one_line(error)}") from None
        finally:
            connection.close()
        if not 200 <= answer.status < 300:
            raise CallFailed(f"{shown}: {answer.status} {answer.reason}")
        return time.monotonic() - from_s
