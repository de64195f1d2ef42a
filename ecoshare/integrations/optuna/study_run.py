"""Run the trials of a study; a thread of the user's process drives the run.

::

    threads in which Optuna calls the objective          the controller's thread
      submit(trial) ─────────────────────────► draw ──► JobArrived ──► StartJob
      serve its process, at its socket                      │
      its end ◄──────────────────────────────────────── JobExited

Optuna decides which trials there are, when no more begin, and the result of each. The core decides where they run.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import queue
import selectors
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
from optuna.distributions import distribution_to_json

from ecoshare.base.clock import REAL, Clock
from ecoshare.core.commands import Command
from ecoshare.core.events import Event, JobExited
from ecoshare.devices.occupancy import Occupancy
from ecoshare.errors import UnfitEnvironment
from ecoshare.integrations.optuna.wire import Channel, accept, described, listen
from ecoshare.jobs.sweep import MAX_TRIALS, trial_name
from ecoshare.jobs.trial_sampler import Values
from ecoshare.record.plan_document import SweepDocument
from ecoshare.record.run_view import ProgressDisplay, RunView
from ecoshare.runtime import run_opening
from ecoshare.runtime.nodes.forked_client import ForkedServer
from ecoshare.runtime.nodes.held_machines import ThisMachine
from ecoshare.runtime.nodes.warm_server import LaneServer
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.planning.planned_job import PlannedJob
from ecoshare.runtime.planning.planned_sweeps import PlannedSweep

if TYPE_CHECKING:
    from ecoshare.jobs.trial_sampler import TrialSampler
    from ecoshare.runtime.run_lifecycle import FinishedRun


def check_forkable(on_gpu: bool) -> None:
    """Check that a forked child of this process can use the device.

    Raises:
        UnfitEnvironment: A child cannot use it.
    """
    torch = sys.modules.get("torch")
    if on_gpu and ((torch is not None and torch.cuda.is_initialized()) or _driver_refuses()):
        raise UnfitEnvironment(
            "CUDA is in use in this process already, and trials are forked from it, which CUDA does not allow: "
            "touch the GPU in the objective only (torch.cuda.is_available() counts, too)"
        )
    if _has_backward_threads():
        raise UnfitEnvironment(
            "this process has run a backward pass where a GPU is visible, and torch allows none in a process forked "
            "from it: do that in the objective, or with CUDA_VISIBLE_DEVICES="
        )


def _driver_refuses() -> bool:
    """True if the driver is loaded here and a forked child fails to initialise it; forks a child to test this."""
    if "libcuda.so" not in Path("/proc/self/maps").read_text():
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of a fork beside threads
        child = os.fork()
    if child == 0:
        try:
            os._exit(1 if ctypes.CDLL("libcuda.so.1").cuInit(0) else 0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def _has_backward_threads() -> bool:
    """True if torch's autograd has started its device threads, which never end."""
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended
            if (task / "comm").read_text().startswith("pt_autograd"):
                return True
    return False


Outcome = dict[str, Any]
"""Last message of a trial's process, with a key `value`, `pruned` or `failed`."""

_METHODS = frozenset(
    {
        "suggest_float",
        "suggest_uniform",
        "suggest_loguniform",
        "suggest_discrete_uniform",
        "suggest_int",
        "suggest_categorical",
        "report",
        "should_prune",
        "set_user_attr",
        "set_system_attr",
        "set_constraint",
    }
)
_PROPERTIES: dict[str, Callable[[Any], Any]] = {
    "params": lambda params: params,
    "distributions": lambda found: {name: distribution_to_json(each) for name, each in found.items()},
    "user_attrs": lambda attributes: attributes,
    "system_attrs": lambda attributes: attributes,
    "constraints": lambda constraints: constraints,
    "datetime_start": lambda moment: moment.isoformat() if moment is not None else None,
}
_STUDY_METHODS = frozenset({"stop", "set_user_attr"})
_STUDY_PROPERTIES = frozenset({"user_attrs", "best_value", "best_params"})


class Listener:
    """Socket at which a trial's process reaches the trial."""

    def __init__(self, trial: optuna.Trial, name: str) -> None:
        """Listen under a name, see `wire.listen`."""
        self._trial = trial
        self._socket = listen(name)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def serve(self, over: int) -> Outcome | None:
        """Answer the trial's process until `over` is readable; return its outcome, or None without one.

        If the trial is started again, the outcome of the earlier process does not count.

        Args:
            over: File descriptor that becomes readable when the trial is over.
        """
        outcome: Outcome | None = None
        channel: Channel | None = None
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(over, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if channel is not None and channel.connection in ready:
                    message = channel.hear()
                    if message is not None and "ask" in message:
                        self._answer(channel, message)
                        continue
                    outcome = message or outcome
                    if message is None:
                        selector.unregister(channel.connection)
                        channel.close()
                        channel = None
                elif self._socket in ready:
                    if (connection := accept(self._socket)) is None:
                        continue
                    if channel is not None:
                        selector.unregister(channel.connection)
                        channel.close()
                    channel, outcome = Channel(connection), None
                    selector.register(channel.connection, selectors.EVENT_READ)
                elif over in ready:
                    if channel is not None:
                        channel.close()
                    return outcome

    def _answer(self, channel: Channel, message: dict[str, Any]) -> None:
        try:
            value = self._called(message["ask"], message["args"], message["options"])
            try:
                channel.tell(value=value)
            except (TypeError, ValueError) as error:
                raise TypeError(f"{message['ask']}: {error}") from error
        except OSError:
            pass  # the process is gone; `over` becomes readable
        except Exception as error:
            channel.tell(error=described(error))

    def _called(self, name: str, args: list[Any], options: dict[str, Any]) -> Any:
        owner, _, member = name.rpartition(".")
        if owner == "study":
            if member in _STUDY_METHODS:
                return getattr(self._trial.study, member)(*args, **options)
            if member in _STUDY_PROPERTIES:
                return getattr(self._trial.study, member)
        elif name in _METHODS:
            return getattr(self._trial, name)(*args, **options)
        elif name in _PROPERTIES:
            return _PROPERTIES[name](getattr(self._trial, name))
        raise AttributeError(f"a trial has no {name!r} in a process of its own")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySweep(PlannedSweep):
    """A sweep that gets its trials while the run goes on.

    Attributes:
        submitted: Sampler that holds the trials; each job is named by its number in the study.
        most: Number of trials in the end; None if unknown.
    """

    submitted: Submitted
    most: int | None

    def trial(self, number: int, values: Values) -> PlannedJob:
        name = trial_name(self.name, self.submitted.numbers[number], MAX_TRIALS)
        spec = replace(self.template.spec, name=name, sweep=self.name)
        source = self.template.source.model_copy(update={"name": name})
        return replace(self.template, spec=spec, source=source, metric=self.options.metric)

    def document(self) -> SweepDocument:
        return PlannedSweep.document(self).model_copy(update={"trials": self.most, "called": True})

    def sampler(self, folder: Path) -> TrialSampler:
        self.submitted.folder = folder
        return self.submitted


class Submitted:
    """Sampler of the sweep that hands out the submitted trials.

    Attributes:
        numbers: Number of a trial in the study, by its number in the sweep.
        folder: Run folder; None before the run has one.
    """

    def __init__(self, tell_ended: Callable[[int], None]) -> None:
        """Start without trials; `tell_ended` is called with the study number of each trial that is over."""
        self.numbers: dict[int, int] = {}
        self._tell_ended = tell_ended
        self.folder: Path | None = None
        self._waiting: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def submit(self, number: int) -> None:
        """Add the trial with this number in the study."""
        self._waiting.put(number)

    def close(self) -> None:
        """End the submission. A `draw` that still waited in a thread would keep the controller's loop from ending."""
        self._waiting.put(None)

    def draw(self, number: int) -> Values | None:
        """See `TrialSampler`; waits until a trial is submitted."""
        submitted = self._waiting.get()
        if submitted is None:
            self._waiting.put(None)  # for the next call
            return None
        self.numbers[number] = submitted
        return ()

    def reported(self, number: int, step: int, value: float) -> str:
        """See `TrialSampler`. Always empty: the objective asks the study's pruner itself."""
        return ""

    def ended(self, number: int, value: float | None, pruned: bool) -> None:
        self._tell_ended(number)


class Ticket:
    """Handle of a trial that was submitted to the controller.

    Attributes:
        end: End of the last attempt; None if the trial never ran, or its end is unknown.
        over: File descriptor that becomes readable when the trial is over.
    """

    def __init__(self) -> None:
        self.end: JobExited | None = None
        self.over = os.eventfd(0, os.EFD_CLOEXEC)

    def finish(self) -> None:
        """Signal that the trial is over."""
        os.eventfd_write(self.over, 1)

    def close(self) -> None:
        """Close the file descriptor when no thread waits for it any more."""
        os.close(self.over)


@dataclass
class StudyRun:
    """A run with the trials of a study; see the module.

    Attributes:
        forked: Server of the run's lanes.
        shown: Display that gets the events of the run.
        result: Result of the session; None before its end.
        error: Exception that ended the run; None otherwise.
        clock: Time of the run.
    """

    forked: ForkedServer
    shown: ProgressDisplay
    result: FinishedRun | None = None
    error: BaseException | None = None
    _stopping: bool = False
    _tickets: dict[int, Ticket] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)  # signal handlers may run while it is held
    _begun: threading.Event = field(default_factory=threading.Event)
    _asked_to_stop: Callable[[], object] | None = None
    _thread: threading.Thread | None = None
    clock: Clock = REAL
    _is_over: bool = False

    def __post_init__(self) -> None:
        self.submitted = Submitted(self._ended)

    def start(self, plan: Plan, job_text: str, runs: Path, occupancy: Occupancy) -> None:
        """Begin the run in its own thread; return when it can take trials, or has failed."""

        def drive() -> None:
            try:
                self.result = run_opening.start(plan, job_text, runs, self, machines=ThisMachine(occupancy), host=self)
            except BaseException as error:  # any class: the user's thread raises it
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
        """End the submission of trials and wait for the end of the run."""
        self.submitted.close()
        if self._thread is not None:
            self._thread.join()

    @property
    def is_ending(self) -> bool:
        """True if no trial begins any more: the run was asked to stop, or is over."""
        return self._stopping or self._is_over

    @property
    def folder(self) -> Path | None:
        """Run folder; None before the run has one."""
        return self.submitted.folder

    @contextlib.contextmanager
    def submit(self, name: str, number: int) -> Iterator[Ticket]:
        """Context manager that runs a trial in a job of this name."""
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
        """Begin no more trials, and end those that run; a second call kills them."""
        with self._lock:
            self._stopping = True
            asked = self._asked_to_stop
        self.submitted.close()
        if asked is not None:
            asked()

    # Methods of the run's host

    @contextlib.contextmanager
    def heard(self, asked_to_stop: Callable[[], None]) -> Iterator[None]:
        """See `runtime.host.Host`. The user's thread handles signals."""
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
        """See `runtime.host.Host`. The run uses the one server that was forked before it."""
        return await self.forked.start(token, log)

    def over(self) -> None: ...

    # Methods of the run's progress display

    def event(self, event: Event, commands: list[Command]) -> None:
        """Store how a trial ended, and show the event."""
        if isinstance(event, JobExited):
            with self._lock:
                if (number := self._numbers.get(event.job)) is not None:
                    self._tickets[number].end = event
        self.shown.event(event, commands)

    def is_due(self, at_s: float) -> bool:
        return False

    def show(self, view: RunView) -> None:
        """See `ProgressDisplay`. Shows nothing: Optuna shows the progress of the study."""

    def close(self) -> None:
        self.shown.close()
