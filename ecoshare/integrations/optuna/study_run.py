"""A run whose trials are those of a study, driven by a thread of the user's process.

::

    threads in which Optuna calls the objective          the controller's thread
      submit(trial) ─────────────────────────► draw ──► JobArrived ──► StartJob
      serve its process, at its socket                      │
      its end ◄──────────────────────────────────────── JobExited

Optuna says which trials there are, when no more begin and what becomes of each; the core says where they run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoshare.core.commands import Command
from ecoshare.core.events import Event, JobExited
from ecoshare.devices.occupancy import Occupancy
from ecoshare.jobs.sweep import MAX_TRIALS, trial_name
from ecoshare.record.run_view import ProgressDisplay, RunView
from ecoshare.runtime import run_opening
from ecoshare.runtime.forked_client import ForkedServer
from ecoshare.runtime.plan import Plan
from ecoshare.runtime.planned_job import PlannedJob
from ecoshare.runtime.planned_sweeps import PlannedSweep
from ecoshare.runtime.warm_server import LaneServer
from ecoshare.sampling.sweep_space import Values

if TYPE_CHECKING:
    from ecoshare.runtime.run_lifecycle import RunResult
    from ecoshare.sampling.trial_sampler import TrialSampler


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySweep(PlannedSweep):
    """A sweep whose trials are submitted while it goes on.

    Attributes:
        submitted: They; trial n of the sweep has the number that its study gave it.
        most: How many there will be, where that is known.
    """

    submitted: Submitted
    most: int | None

    def trial(self, number: int, values: Values) -> PlannedJob:
        """See `PlannedSweep`."""
        name = trial_name(self.name, self.submitted.numbers[number], MAX_TRIALS)
        spec = replace(self.template.spec, name=name, sweep=self.name)
        source = self.template.source.model_copy(update={"name": name})
        return replace(self.template, spec=spec, source=source, metric=self.options.metric)

    def as_dict(self) -> dict[str, Any]:
        """See `PlannedSweep`."""
        return {**PlannedSweep.as_dict(self), "trials": self.most, "called": True}

    def sampler(self, folder: Path) -> TrialSampler:
        """See `PlannedSweep`."""
        self.submitted.folder = folder
        return self.submitted


class Submitted:
    """The sampler of the sweep: hands on the trials that are submitted.

    Attributes:
        numbers: In the study, in the order in which the core has asked for them.
        folder: Of the run, once there is one.
    """

    def __init__(self, tell_ended: Callable[[int], None]) -> None:
        """None yet; `tell_ended` is called with the number of each trial that is over."""
        self.numbers: dict[int, int] = {}
        self._tell_ended = tell_ended
        self.folder: Path | None = None
        self._waiting: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def submit(self, number: int) -> None:
        """A trial is to be run."""
        self._waiting.put(number)

    def close(self) -> None:
        """No more will be submitted; who waits for one in a thread would keep the controller's loop from its end."""
        self._waiting.put(None)

    def draw(self, number: int) -> Values | None:
        """See `TrialSampler`; waits until a trial is submitted."""
        submitted = self._waiting.get()
        if submitted is None:
            self._waiting.put(None)  # for whoever asks next
            return None
        self.numbers[number] = submitted
        return ()

    def reported(self, number: int, step: int, value: float) -> str:
        """See `TrialSampler`: the objective asks the study's pruner itself."""
        return ""

    def ended(self, number: int, value: float | None, pruned: bool) -> None:
        """See `TrialSampler`."""
        self._tell_ended(number)


class Ticket:
    """A trial that is in the controller's hands.

    Attributes:
        end: How its last attempt ended; None where it never ran, or its end is not known.
        over: A file descriptor that can be read when it is over.
    """

    def __init__(self) -> None:
        self.end: JobExited | None = None
        self.over = os.eventfd(0, os.EFD_CLOEXEC)

    def finish(self) -> None:
        """It is over."""
        os.eventfd_write(self.over, 1)

    def close(self) -> None:
        """Nobody waits for it any more."""
        os.close(self.over)


@dataclass
class StudyRun:
    """The run; see the module.

    Attributes:
        forked: The server of its lanes.
        shown: Is told what happens.
        result: Of the session, when it is over.
        error: What has ended it otherwise.
    """

    forked: ForkedServer
    shown: ProgressDisplay
    result: RunResult | None = None
    error: BaseException | None = None
    _stopping: bool = False
    _tickets: dict[int, Ticket] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)  # a handler of signals may come while it is held
    _begun: threading.Event = field(default_factory=threading.Event)
    _asked_to_stop: Callable[[], object] | None = None
    _thread: threading.Thread | None = None
    _is_over: bool = False

    def __post_init__(self) -> None:
        self.submitted = Submitted(self._ended)

    def start(self, plan: Plan, job_text: str, runs: Path, occupancy: Occupancy) -> None:
        """Begin it in a thread of its own; returns when it can take trials, or has failed."""

        def drive() -> None:
            try:
                self.result = run_opening.start(plan, job_text, runs, self, host=self, occupancy=occupancy)
            except BaseException as error:  # whatever it is, the user's thread raises it
                self.error = error
            finally:
                self.submitted.close()
                with self._lock:
                    self._is_over = True
                    for ticket in self._tickets.values():
                        ticket.finish()
                self._begun.set()

        self._thread = threading.Thread(target=drive, name="ecoshare")
        self._thread.start()
        self._begun.wait()

    def finish(self) -> None:
        """No more trials come: wait for the end of the run."""
        self.submitted.close()
        if self._thread is not None:
            self._thread.join()

    @property
    def is_ending(self) -> bool:
        """Whether no trial begins any more: it was asked to stop, or is over."""
        return self._stopping or self._is_over

    @property
    def folder(self) -> Path | None:
        """Of the run, once there is one."""
        return self.submitted.folder

    @contextlib.contextmanager
    def submit(self, name: str, number: int) -> Iterator[Ticket]:
        """Have a trial run, in a job of this name."""
        ticket = Ticket()
        with self._lock:
            self._tickets[number], self._numbers[name] = ticket, number
            if self.is_ending:
                ticket.finish()
            else:
                self.submitted.submit(number)
        try:
            yield ticket
        finally:
            with self._lock:
                del self._tickets[number], self._numbers[name]
                ticket.close()

    def _ended(self, number: int) -> None:
        with self._lock:
            if number in self._tickets:
                self._tickets[number].finish()

    def stop(self) -> None:
        """Begin no more trials, and end those that run; when called again, kill them."""
        with self._lock:
            self._stopping = True
            asked = self._asked_to_stop
        self.submitted.close()
        if asked is not None:
            asked()

    # As the run's host

    @contextlib.contextmanager
    def heard(self, asked_to_stop: Callable[[], None]) -> Iterator[None]:
        """See `runtime.host.Host`: signals are heard by the user's thread."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._asked_to_stop = partial(loop.call_soon_threadsafe, asked_to_stop)
            if self._stopping:
                asked_to_stop()
        self._begun.set()
        try:
            yield
        finally:
            with self._lock:
                self._asked_to_stop = None
            self.submitted.close()

    async def server(self, token: str, log: Path) -> LaneServer:
        """See `runtime.host.Host`: there is one, from before the run."""
        return await self.forked.start(token, log)

    def over(self) -> None:
        """See `runtime.host.Host`."""

    # As the run's progress

    def event(self, event: Event, commands: list[Command]) -> None:
        """Remember how a trial has ended, and show it."""
        if isinstance(event, JobExited):
            with self._lock:
                if (number := self._numbers.get(event.job)) is not None:
                    self._tickets[number].end = event
        self.shown.event(event, commands)

    def show(self, view: RunView) -> None:
        """See `ProgressDisplay`: Optuna shows how far the study is."""

    def close(self) -> None:
        """See `ProgressDisplay`."""
        self.shown.close()
