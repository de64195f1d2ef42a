"""Program of each allocation of a chain: it waits for its predecessor, runs the jobs, and keeps the chain going.

::

    started ──► idle ──► works ──► stopped: at its limit less a time, or because its successor takes over
                  │        └─────► finished, broken, terminated
                  └► not needed: the chain has ended

The batch script becomes this process, so Slurm's signals come here. The run is a child, which the kernel kills with it.
The limit is watched by this process' own clock: Slurm's check of `--signal` is up to a minute late, or early. Looks at
the queue, which may take minutes, have a thread of their own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from ecoshare.base.device import DeviceInfo
from ecoshare.base.joules import MEASURED, MODELLED
from ecoshare.contrib.chains import chain_steps, slurm_queue
from ecoshare.contrib.chains.allocation_chain import (
    IDLE_GPU_W,
    AllocationChain,
    AllocationEnd,
    ChainAllocation,
    Overlap,
)
from ecoshare.contrib.chains.chain_folder import ChainFolder
from ecoshare.contrib.chains.chain_keeper import ChainKeeper, check_s
from ecoshare.contrib.chains.own_jobs import in_queue
from ecoshare.devices.choice import find_all
from ecoshare.devices.meter import Meter, Reading, energy_between
from ecoshare.devices.registry import open_device, power_models
from ecoshare.devices.vendor import OpenDevice
from ecoshare.errors import EcoshareError, UnfitEnvironment, UsageError
from ecoshare.lane.processes import die_with_parent
from ecoshare.record.past_runs import past_run
from ecoshare.record.run_data import is_live
from ecoshare.runtime.signals import ENDING


@dataclass(frozen=True, slots=True)
class IdleJoules:
    """Joules of an idle allocation.

    Attributes:
        value_j: Joules of the devices of all its machines.
        source: `measured`, or `modelled`.
    """

    value_j: float
    source: str


@dataclass(slots=True)
class _Metered:
    """Device of this machine with its meter, and the first reading."""

    device: DeviceInfo
    opened: OpenDevice | None = None
    meter: Meter | None = None
    first: Reading | None = None


@dataclass(slots=True)
class IdleEnergy:
    """Joules of the devices of an allocation from now on.

    GPUs are measured by their own counters. A counter of processors also counts whatever else runs on the machine,
    which may be the predecessor itself, so the joules of processors are modelled: their power at rest.

    Attributes:
        machines: Number of machines. Those of this one are measured; the others count as much, modelled.
        wanted: Names of the devices; None for the GPUs, else the processors.
        limit: Number of devices of a machine; None for all.
    """

    machines: int
    wanted: str | None
    limit: int | None
    _began_s: float = field(default_factory=time.monotonic)
    _metered: list[_Metered] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Open the meters. One that fails is replaced by a model."""
        try:
            devices = find_all(self.wanted)[: self.limit]
        except EcoshareError:  # the run will tell what is wrong with the devices
            return
        for device in devices:
            own = _Metered(device)
            self._metered.append(own)
            if device.on_processors:
                continue
            try:
                own.opened = open_device(device)
                own.meter = own.opened.open_meter()
                own.first = own.meter.read()
            except UnfitEnvironment:
                own.meter = None

    def end(self) -> IdleJoules | None:
        """Joules since the beginning, after which the devices are closed; None if no device is known."""
        wall_s = time.monotonic() - self._began_s
        total_j, measured = 0.0, self.machines == 1
        for own in self._metered:
            measured_j = _measured_j(own)
            measured = measured and measured_j is not None
            total_j += _modelled_j(own.device, wall_s) if measured_j is None else measured_j
            if own.opened is not None:
                own.opened.close()
        if not self._metered:
            return None
        return IdleJoules(self.machines * total_j, MEASURED if measured else MODELLED)


def _measured_j(own: _Metered) -> float | None:
    if own.meter is None or own.first is None:
        return None
    try:
        return energy_between(own.first, own.meter.read(), own.meter.info).value_j
    except UnfitEnvironment:
        return None


def _modelled_j(device: DeviceInfo, wall_s: float) -> float:
    try:
        model = power_models([device])[device.name]
    except UnfitEnvironment:
        model = None
    return model.idle_j(wall_s) if model is not None else IDLE_GPU_W * wall_s


class Looks:
    """Carries out looks in a thread, one after another. The thread does not keep the process alive."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Carry out no look yet.

        Args:
            say: Shows why a look has failed.
        """
        self._say = say
        self._thread: threading.Thread | None = None

    def start(self, act: Callable[[], object]) -> bool:
        """Start a look. Return False, without one, if the last one has not ended."""
        if self._thread is not None and self._thread.is_alive():
            return False
        self._thread = threading.Thread(target=quietly, args=(act, self._say), name="look", daemon=True)
        self._thread.start()
        return True

    def join(self, within_s: float) -> bool:
        """Wait for the end of the last look. Return whether it has ended.

        Args:
            within_s: Longest time (s) to wait.
        """
        if self._thread is not None:
            self._thread.join(within_s)
            return not self._thread.is_alive()
        return True


def quietly(act: Callable[[], object], say: Callable[[str], None]) -> None:
    """Do what may fail without harm to the jobs: Slurm, a disk or the memory may be busy for a while."""
    try:
        act()
    except Exception as error:  # whatever it is, jobs go on
        say(str(error) or type(error).__name__)


_POLL_S = 0.5
"""Time (s) between two looks at the record and at the run."""

_NEAR_LIMIT_S = 5.0
"""Time (s) before the limit from which SIGTERM is that of the limit."""

_TRY_AGAIN_S = 10.0
"""Time (s) between tries to submit a successor after the jobs have stopped, or to end the chain."""

_BEGINS_WITHIN_S = 600.0
"""Longest time (s) that an allocation waits for the lock at its start. Another process may wait for Slurm."""

_LEAVES_WITHIN_S = 5.0
"""Longest time (s) that an allocation waits for the lock, or for a look, at its end."""


def work(path: Path, number: int) -> int:
    """Run one allocation of a chain, in its batch script. Returns the exit code of its run, 0 if it had none.

    Args:
        path: Folder of the chain.
        number: Number of the allocation, by its script.

    Raises:
        UsageError: The folder has no chain.
        UnfitEnvironment: This process is in no allocation.
    """
    text = os.environ.get("SLURM_JOB_ID", "")
    if not text.isdecimal():
        raise UnfitEnvironment("this command runs in an allocation of a chain", "`ecoshare slurm chain` submits it")
    folder, job = ChainFolder(path), int(text)
    folder.read()  # raises before a lock is made in some folder
    chain = folder.change(partial(_begun, job=job, number=number), _BEGINS_WITHIN_S)
    if chain.outcome is not None:
        _say(f"the chain has ended: {chain.outcome.value}")
        return 0
    own = chain.of_job(job)
    if own is None or not own.is_live:
        _say(f"Slurm job {job} has no place in {path}: another one has it")
        return 0
    return Allocation(folder, job, chain).work()


def _begun(chain: AllocationChain, job: int, number: int) -> AllocationChain:
    now_s = time.time()
    chain = chain_steps.started(chain, job, number, now_s)
    own = chain.of_job(job)
    if chain.outcome is not None and own is not None and own.is_live:
        chain = chain_steps.changed(chain, replace(own, end=AllocationEnd.NOT_NEEDED, ended_s=now_s))
    return chain


class Allocation:
    """One allocation of a chain, at work."""

    def __init__(self, folder: ChainFolder, job: int, chain: AllocationChain) -> None:
        """Take up the work of a Slurm job.

        Args:
            folder: Folder of the chain.
            job: ID of the Slurm job.
            chain: The chain, which has this allocation as started.
        """
        own = chain.of_job(job)
        if own is None:
            raise UsageError(f"{folder.path} no longer has Slurm job {job}")
        self._folder, self._number = folder, own.number
        self._keeper, self._looks = ChainKeeper(folder, _say), Looks(_say)
        self._chain, self._fault = chain, ""
        self._asked_s: float | None = None  # moment at which Slurm sent SIGTERM
        self._limit_s = time.time() + _left_s(chain, job)
        self._stop_s = self._limit_s - chain.stop_s

    def work(self) -> int:
        """Wait for the predecessor, run the jobs, and leave. Returns the exit code of the run, 0 if it had none."""
        for signal_number in ENDING:
            signal.signal(signal_number, lambda _number, _frame: self._note_signal())
        chain = self._read()
        meter = IdleEnergy(chain.nodes, *_devices(chain)) if len(chain.live) > 1 else None
        code = 0
        if self._turn_has_come(cache(meter.end) if meter is not None else lambda: None):
            code, asked = self._run(self._read())
            self._leave(code, asked)
        self._looks.join(_LEAVES_WITHIN_S)
        return code

    def _leave(self, code: int, asked: bool) -> None:
        """Record the end of the run, and see to what comes after it."""
        run = self._folder.run
        finished = run is not None and chain_steps.is_finished(code, past_run(run.path.resolve()).state)
        end = chain_steps.end_of_run(finished, asked or self._asked_s is not None, self._is_terminated())
        if end is AllocationEnd.STOPPED and run is None:
            end = AllocationEnd.TOO_SHORT
        _say(f"allocation {self._number}: {end.value}, exit code {code}")
        self._record(end, code)
        if end in (AllocationEnd.STOPPED, AllocationEnd.TOO_SHORT):
            self._leave_successor()
        elif end in (AllocationEnd.FINISHED, AllocationEnd.BROKEN):
            self._end_chain(end, code)
            self._report()

    def _note_signal(self) -> None:
        if self._asked_s is None:
            self._asked_s = time.time()

    def _is_terminated(self) -> bool:
        """Whether Slurm sent SIGTERM, and not because of the limit."""
        return is_early(self._asked_s, self._limit_s)

    def _read(self) -> AllocationChain:
        """The record, or the last one that could be read: a file system may be busy, and jobs go on."""
        try:
            self._chain, self._fault = self._folder.read(), ""
        except (EcoshareError, OSError) as error:
            if str(error) != self._fault:
                self._fault = str(error)
                _say(self._fault)
        return self._chain

    def _own(self, chain: AllocationChain) -> ChainAllocation:
        own = next((each for each in chain.allocations if each.number == self._number), None)
        if own is None:
            raise UsageError(f"{self._folder.path} no longer has allocation {self._number}")
        return own

    def _record(self, end: AllocationEnd, code: int | None, joules: IdleJoules | None = None) -> None:
        """Record the end of this allocation, whatever a look is stuck in."""
        edit = partial(self._over, end=end, code=code, joules=joules)
        quietly(partial(self._folder.end, edit, _LEAVES_WITHIN_S), _say)

    def _turn_has_come(self, joules: Callable[[], IdleJoules | None]) -> bool:
        """Wait until this allocation may run the jobs. Return False if it never will, which is recorded.

        Args:
            joules: Ends the measurement of the wait.
        """
        look_s = 0.0
        while True:
            chain = self._read()
            if not self._own(chain).is_live:
                return False  # another process has seen that the job was lost, or is not needed
            end = AllocationEnd.NOT_NEEDED if chain.outcome is not None else None
            if self._is_terminated():
                end = AllocationEnd.TERMINATED
            elif time.time() >= self._stop_s:
                end = AllocationEnd.STOPPED
            if end is not None:
                self._record(end, None, joules())
                if end is AllocationEnd.STOPPED:
                    self._leave_successor()
                return False
            if chain_steps.may_work(chain, self._own(chain)) and not self._predecessor_writes():
                edit = partial(self._at_work, joules=joules)
                quietly(partial(self._folder.change, edit, _LEAVES_WITHIN_S), _say)
                if self._own(self._read()).works:
                    return True
            elif self._asks(chain):
                quietly(partial(self._folder.change, self._asking, _LEAVES_WITHIN_S), _say)
            if time.time() >= look_s and self._looks.start(self._look_around):
                look_s = time.time() + check_s(chain)
            time.sleep(_POLL_S)

    def _asks(self, chain: AllocationChain) -> bool:
        """Whether it is time to ask the predecessor to stop."""
        takes_over = chain.overlap is Overlap.TAKE_OVER
        return takes_over and chain_steps.may_take_over(chain, self._own(chain), time.time())

    def _look_around(self) -> None:
        """The predecessor may have died, and the chain may need a further successor."""
        quietly(self._keeper.reconcile, _say)
        self._keeper.look()

    def _predecessor_writes(self) -> bool:
        """Whether the run is still going on, such as on a machine that Slurm has given up."""
        run = self._folder.run
        return run is not None and is_live(run)

    def _at_work(self, chain: AllocationChain, joules: Callable[[], IdleJoules | None]) -> AllocationChain:
        own = self._own(chain)
        if not own.is_live or not chain_steps.may_work(chain, own):
            return chain
        chain = self._with_joules(chain, own, joules())
        return chain_steps.at_work(chain, self._own(chain), time.time())

    def _asking(self, chain: AllocationChain) -> AllocationChain:
        return chain_steps.changed(chain, replace(self._own(chain), asks_s=time.time()))

    def _over(
        self, chain: AllocationChain, end: AllocationEnd, code: int | None, joules: IdleJoules | None = None
    ) -> AllocationChain:
        own, now_s = self._own(chain), time.time()
        works_to_s = now_s if own.works_from_s is not None else None
        own = replace(own, end=end, code=code, ended_s=now_s, works_to_s=works_to_s)
        if end in (AllocationEnd.FINISHED, AllocationEnd.BROKEN):
            chain = replace(chain, code=code)
        return self._with_joules(chain, own, joules)

    @staticmethod
    def _with_joules(chain: AllocationChain, own: ChainAllocation, joules: IdleJoules | None) -> AllocationChain:
        if joules is not None:
            own = replace(own, idle_j=joules.value_j, idle_source=joules.source)
        return chain_steps.changed(chain, own)

    def _run(self, chain: AllocationChain) -> tuple[int, bool]:
        """Run the jobs until they have ended or must stop. Returns the exit code, and whether the run was to stop."""
        parent, asked, look_s = os.getpid(), False, 0.0
        child = subprocess.Popen(_command(self._folder, chain), preexec_fn=lambda: die_with_parent(parent))
        while (code := child.poll()) is None:
            chain, now_s = self._read(), time.time()
            if not asked and (self._asked_s is not None or now_s >= self._stop_s or self._is_relieved(chain)):
                asked, look_s = True, 0.0
                child.terminate()
            force = asked and not self._has_successor(chain)
            is_due = now_s >= look_s and (force or now_s >= chain.look_s)
            if self._asked_s is None and is_due and self._looks.start(partial(self._keeper.look, force)):
                look_s = now_s + check_s(chain)
            try:
                child.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                continue
        return code, asked

    def _is_relieved(self, chain: AllocationChain) -> bool:
        """Whether a successor asks to take over."""
        return any(each.is_idle and each.asks_s is not None for each in chain.allocations)

    def _has_successor(self, chain: AllocationChain) -> bool:
        return any(each.number != self._number for each in chain.live)

    def _leave_successor(self) -> None:
        """Submit a successor if none is there, for as long as this allocation lasts and no user cancels it."""
        look = partial(self._keeper.look, True)
        chain = self._tried(
            look, lambda now: self._has_successor(now) or now.outcome is not None or self._is_terminated()
        )
        if self._is_terminated() and chain.outcome is None and not self._has_successor(chain):
            quietly(partial(self._folder.end, self._cancelled, _LEAVES_WITHIN_S), _say)

    def _cancelled(self, chain: AllocationChain) -> AllocationChain:
        return chain_steps.changed(chain, replace(self._own(chain), end=AllocationEnd.TERMINATED))

    def _end_chain(self, end: AllocationEnd, code: int) -> None:
        """Record the end of the chain, and take its jobs out of the queue."""

        def reconcile() -> None:
            if self._own(self._folder.read()).is_live:  # the end could not be written
                self._record(end, code)
            self._keeper.reconcile()

        self._tried(reconcile, lambda now: now.outcome is not None)

    def _tried(self, act: Callable[[], object], done: Callable[[AllocationChain], bool]) -> AllocationChain:
        """Try a look again and again until it is done, or the limit has come. Returns the chain as it is then."""
        try_s = 0.0
        while not done(chain := self._read()):
            if time.time() >= try_s and self._looks.start(act):
                try_s = time.time() + _TRY_AGAIN_S
                self._looks.join(_POLL_S)
            elif time.time() >= self._limit_s:
                break
            else:
                self._looks.join(_POLL_S)
                time.sleep(_POLL_S)
        return chain

    def _report(self) -> None:
        """Draw the report of the run, which has a section on the chain."""
        run = self._folder.run
        if run is not None and "--no-report" not in self._chain.run_options:
            words = ["export", str(run.path), "--format", "html", "--output", str(run.report)]
            subprocess.run([sys.executable, "-m", "ecoshare", *words], check=False)


def is_early(asked_s: float | None, limit_s: float) -> bool:
    """Whether SIGTERM came before that of the limit: `scancel`, a preemption or a requeue.

    Args:
        asked_s: Moment (s) of SIGTERM; None without one.
        limit_s: Moment (s) of the limit.
    """
    return asked_s is not None and asked_s < limit_s - _NEAR_LIMIT_S


def _command(folder: ChainFolder, chain: AllocationChain) -> list[str]:
    """Command line of the run: a new one, or the rest of the one that there is."""
    begin = [sys.executable, "-m", "ecoshare", "run"]
    report = [] if "--no-report" in chain.run_options else ["--no-report"]  # it is drawn at the end of the chain
    if folder.run is not None:
        return [*begin, "--resume", str(folder.path / "latest"), *chain.resume_options, *report]
    return [*begin, chain.jobs, "--runs", str(folder.path), *chain.run_options, *report]


def _devices(chain: AllocationChain) -> tuple[str | None, int | None]:
    """Devices of each machine: their names, and their number."""
    options: Sequence[str] = chain.run_options
    named = [options[place + 1] for place, word in enumerate(options[:-1]) if word == "--device"]
    named += [word.partition("=")[2] for word in options if word.startswith("--device=")]
    count = chain.count // chain.nodes if chain.resource != slurm_queue.CPU else None
    return (named[-1] if named else None), count


def _left_s(chain: AllocationChain, job: int) -> float:
    """Time (s) until the limit of a running job."""
    try:
        found = in_queue(slurm_queue.own(chain.folder), job)
    except EcoshareError as error:
        _say(str(error))
        found = None
    return min(chain.limit_s, found.left_s) if found is not None and not found.waits else chain.limit_s


def _say(words: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} chain: {words}", file=sys.stderr, flush=True)
