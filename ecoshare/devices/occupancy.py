"""Tracks which runs use which devices. A second run takes turns, waits, is refused, or shares them on purpose.

::

    /run/lock/ecoshare-<device>.queue         held (flock) by the run that is admitted next
    /run/lock/ecoshare-<device>.<token>.run   held by a run as long as it uses the device; names the run

Runs take turns (`device_slices.py`), unless one has asked for the devices alone. On a GPU they divide the memory, too:
each writes into its file how much it claims and wants. A claim shrinks at any time, and grows only by what no other run
claims, under a lock of its own. So the claims never exceed the memory, and no run needs an answer of another.

A lock ends with the process that holds it, however that process ends. A file without a lock belongs to a run that is
over. The processes of the jobs hold the lock, too: a claim stands as long as they live.

A run of several devices takes their locks in one order, so that two runs never wait for each other. The processors are
one resource here, whether a run uses them as one device or as partitions: its file names those that it uses.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, NonNegativeInt

from ecoshare.base import documents
from ecoshare.base.device import PROCESSORS, DeviceInfo
from ecoshare.base.plural import counted
from ecoshare.core.slices import SLICE_S, MemoryWish
from ecoshare.devices.control.state_folder import STATE_HINT, StateFolder, described, open_lock
from ecoshare.devices.device_slices import keys_of
from ecoshare.devices.registry import open_device
from ecoshare.errors import UnfitEnvironment, UsageError

_LOOK_S, _WITHIN_S = 0.2, 2.0
"""Time (s) between two looks of a waiting run; time (s) that a run to be refused grants the run before it."""

_ENDS_WITHIN_S = 10.0
"""Time (s) for a run's processes to end after the conducting process was killed: they hold its lock, too."""

_LARGEST_BYTES = 1 << 16
"""Most bytes that are read of a record, which another user may have made."""

_MOST_BYTES = 1 << 50
"""Most memory that is believed of a record."""

_HINT = "`--wait` runs when it has ended; `--share-device` runs beside it, with the memory that is free now"


class DeviceAdmission(Enum):
    """Behaviour of a run if another run uses its device."""

    REFUSE = "refuse"
    WAIT = "wait"
    SHARE = "share"
    TURNS = "turns"
    """It takes turns with the other run if both can, and waits for the end of that otherwise."""

    @classmethod
    def of(cls, wait: bool | None = False, share_device: bool = False, exclusive: bool = False) -> DeviceAdmission:
        """Admission that the user asks for.

        Args:
            wait: Whether the run waits for the end of another one, or is refused; None for turns.
            share_device: Whether it runs beside another one at any rate.
            exclusive: Whether no other run may have the device meanwhile.

        Raises:
            UsageError: The user asks for two of them at once.
        """
        if share_device and (wait or exclusive):
            first = "to wait for the device" if wait else "to have the device alone"
            raise UsageError(f"{first} and to share it exclude each other: ask for one of them")
        if share_device:
            return cls.SHARE
        if wait is None:
            return cls.WAIT if exclusive else cls.TURNS
        return cls.WAIT if wait else cls.REFUSE


@dataclass(frozen=True, slots=True)
class Occupant:
    """A run that uses a device.

    Attributes:
        pid: Number of the process that conducts the run; 0 if unknown.
        run: Path of the run folder; empty until there is one.
        processors: Numbers of the processors that the run may use; empty for a run on a GPU.
        takes_turns: Whether it takes turns with other runs.
        memory_bytes: Memory of the GPU that it has found for all runs together; 0 on processors.
        claimed_bytes: Memory that it claims.
        wish: Memory that it would use.
        idle_w: Power (W) of the GPU at rest, as the run knows it; 0 if it does not.
    """

    pid: int = 0
    run: str = ""
    processors: frozenset[int] = frozenset()
    takes_turns: bool = False
    memory_bytes: int = 0
    claimed_bytes: int = 0
    wish: MemoryWish = field(default_factory=partial(MemoryWish, 0))
    idle_w: float = 0.0

    @property
    def is_conducted(self) -> bool:
        """Whether the process that conducts the run is alive; True if its number is unknown."""
        return not self.pid or Path(f"/proc/{self.pid}").exists()

    @property
    def queue(self) -> str:
        """Name of the queue that the run belongs to; empty if there is none."""
        place = Path(self.run).parts[-4:]  # queues/<name>/runs/<run>
        return place[1] if len(place) == 4 and (place[0], place[2]) == ("queues", "runs") else ""

    def __str__(self) -> str:
        process = ""
        with contextlib.suppress(OSError):
            process = described(self.pid) if self.pid else ""
        if self.run and process:
            return f"the run {self.run} ({process})"
        return f"the run {self.run}" if self.run else process or "another run"


class _Record(BaseModel):
    """Content of the file of a run; see `Occupant`."""

    pid: NonNegativeInt
    run: str = Field(max_length=4096)
    processors: list[NonNegativeInt]
    takes_turns: bool = False
    memory_bytes: int = Field(default=0, ge=0, le=_MOST_BYTES)
    claimed_bytes: int = Field(default=0, ge=0, le=_MOST_BYTES)
    wanted_bytes: int = Field(default=0, ge=0, le=_MOST_BYTES)
    needed_bytes: int = Field(default=0, ge=0, le=_MOST_BYTES)
    since_s: float = Field(default=0.0, ge=0.0, le=1e10, allow_inf_nan=False)
    idle_w: float = Field(default=0.0, ge=0.0, le=1e4, allow_inf_nan=False)


@dataclass(frozen=True, slots=True, order=True)
class _Resource:
    """Resource that one lock stands for: a GPU, or the processors of this machine.

    Attributes:
        key: Key of the files.
        name: Name for the user.
        processors: Numbers of the processors that the run uses; empty for a GPU.
    """

    key: str
    name: str
    processors: tuple[int, ...] = ()


class _Use:
    """Use of one resource by a run: the run's file, and the lock on it."""

    def __init__(self, resource: _Resource, state: StateFolder, takes_turns: bool, memory_bytes: int = 0) -> None:
        """Begin to use a resource.

        Raises:
            OSError: The run's file cannot be made.
        """
        self.state, self.resource, self._length = state, resource, 0
        self._record = _Record(
            pid=os.getpid(),
            run="",
            processors=list(resource.processors),
            takes_turns=takes_turns,
            memory_bytes=min(memory_bytes, _MOST_BYTES),
        )
        while True:
            self.path = state.place(resource.key, secrets.token_hex(8))
            self._file = _made(self.path)
            self.tell()
            with contextlib.suppress(FileNotFoundError):
                if self.path.stat().st_ino == os.fstat(self._file).st_ino:
                    return
            os.close(self._file)  # another run saw the file without a lock yet, and removed it

    def tell(self, **changed: Any) -> None:
        """Write the record into the file, if that is possible: on a full disk, other runs learn less."""
        with contextlib.suppress(OSError):
            self.write(**changed)

    def write(self, **changed: Any) -> None:
        """Write the record into the file, with fields that have changed.

        Raises:
            OSError: It cannot be written, and is as before.
        """
        record = self._record.model_copy(update=changed)
        content = record.model_dump_json().encode()
        os.pwrite(self._file, content.ljust(self._length), 0)
        self._record, self._length = record, len(content)

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink()
        fcntl.flock(self._file, fcntl.LOCK_UN)  # processes that were forked meanwhile hold the lock, too
        os.close(self._file)


class MemoryClaim:
    """Memory of a GPU that a run claims. Other runs that take turns with it have the rest.

    Attributes:
        memory_bytes: Memory for all runs together.
        claimed_bytes: Memory that this run claims.
        wish: Memory that it would use, as the others know it.
    """

    def __init__(self, use: _Use, memory_bytes: int) -> None:
        """Claim and want nothing."""
        self._use, self.memory_bytes = use, memory_bytes
        self.claimed_bytes, self.wish = 0, MemoryWish(0, number=os.getpid())

    def others(self) -> list[Occupant]:
        """Other runs that use the GPU now."""
        return [occupant for path, occupant in _occupied(self._use.resource, self._use.state) if path != self._use.path]

    def idle_w(self, drawn_w: float) -> float:
        """Power (W) of the GPU at rest, if it draws so much now. Another run may have seen less before."""
        idle_w = min([drawn_w, *(each.idle_w for each in self.others() if each.idle_w > 0.0)])
        self._use.tell(idle_w=idle_w)
        return idle_w

    def tell(self, claimed_bytes: int, wish: MemoryWish) -> None:
        """Claim so much memory from now on, or less if other runs claim the rest.

        Nothing happens if another run does the same at this moment, or while a record cannot be read.

        Raises:
            OSError: The claim cannot be written.
        """
        lock = open_lock(self._use.state.claims(self._use.resource.key))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            others = self.others() if claimed_bytes > self.claimed_bytes else []
            if not all(each.pid for each in others):
                claimed_bytes = self.claimed_bytes
            free_bytes = self.memory_bytes - sum(each.claimed_bytes for each in others)
            claimed_bytes = min(claimed_bytes, max(self.claimed_bytes, free_bytes))
            told = {"wanted_bytes": wish.wanted_bytes, "needed_bytes": wish.needed_bytes, "since_s": wish.since_s}
            self._use.write(claimed_bytes=claimed_bytes, **told)
            self.claimed_bytes, self.wish = claimed_bytes, wish
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


class Occupancy:
    """Use of devices by a run, until the run ends.

    Attributes:
        devices: The devices as they were when the run was admitted.
        is_shared: Whether another run used one of them at that time.
        turns: Keys of the devices that are had in turns with other runs; empty if they are not.
        claims: Claim to the memory of each GPU that is had in turns, by the name of the device.
    """

    def __init__(self, devices: tuple[DeviceInfo, ...], state: StateFolder, takes_turns: bool = False) -> None:
        """Begin to use devices.

        Raises:
            OSError: A file of the run cannot be made. No device is used then.
        """
        self.devices, self.is_shared, self._uses = devices, False, list[_Use]()
        self.turns, self.claims = list[str](), dict[str, MemoryClaim]()
        resources = _resources(devices)
        if takes_turns:
            self.turns += keys_of(number for each in resources for number in each.processors)
            self.turns += (each.key for each in resources if not each.processors)
        memory = {_key(each): each.memory_bytes for each in devices if not each.on_processors}
        with contextlib.ExitStack() as undo:
            for each in resources:
                use = _Use(each, state, takes_turns, memory.get(each.key, 0))
                self._uses.append(use)
                undo.callback(use.end)
                if takes_turns and not each.processors:
                    self.claims[each.name] = MemoryClaim(use, memory[each.key])
            undo.pop_all()

    def tell(self, run: Path) -> None:
        """Write the run folder into the files, for runs that wait or are refused."""
        for use in self._uses:
            use.tell(run=str(run.absolute()))

    def end(self) -> None:
        """End the use of the devices, so that another run can be admitted."""
        for use in self._uses:
            use.end()


@contextmanager
def occupied(
    find: Callable[[], tuple[DeviceInfo, ...]],
    admission: DeviceAdmission,
    say: Callable[[str], None],
    takes_turns: bool = False,
) -> Iterator[Occupancy]:
    """Context manager: a run uses devices until the context ends.

    Args:
        find: Finds the devices, and is called again after a wait: the amount of free memory has changed then.
        admission: Behaviour if another run uses one of the devices.
        say: Shows a note to the user.
        takes_turns: Whether runs that come later may take turns with this one, if they can on its devices.

    Raises:
        UsageError: From `find`.
        UnfitEnvironment: From `find`, or another run uses a device, or the locks cannot be written.
    """
    state, devices = StateFolder.of_this_user(), find()
    resources = _resources(devices)
    takes_turns = takes_turns and admission is not DeviceAdmission.SHARE and all(map(_has_turns, devices))
    if admission is DeviceAdmission.TURNS and not takes_turns:
        admission = DeviceAdmission.WAIT
    with contextlib.ExitStack() as line:
        if admission is not DeviceAdmission.SHARE:
            for each in resources:
                line.enter_context(_first_in_line(each, state, admission, say))
            waits = [_wait_for_the_end(each, state, admission, say) for each in resources]
            devices = find() if any(waits) else devices
        beside = [(each.name, occupant) for each in resources for occupant in _occupants(each, state)]
        if takes_turns:
            devices = tuple(_with_all_memory(each, beside) for each in devices)
        try:
            occupancy = Occupancy(devices, state, takes_turns)
        except OSError as error:
            raise UnfitEnvironment(f"cannot write to {state.locks}: {error.strerror or error}") from error
    occupancy.is_shared = bool(beside)
    for name, occupant in beside:
        say(_beside(name, occupant, takes_turns and occupant.takes_turns))
    try:
        yield occupancy
    finally:
        occupancy.end()


def occupants(device: DeviceInfo, state: StateFolder) -> list[Occupant]:
    """Runs that use a device now. For processors, only runs that may use some of the same processors."""
    (resource,) = _resources((device,))
    return _occupants(resource, state)


def _occupants(resource: _Resource, state: StateFolder) -> list[Occupant]:
    return [occupant for _, occupant in _occupied(resource, state)]


def _occupied(resource: _Resource, state: StateFolder) -> list[tuple[Path, Occupant]]:
    """Runs that use a resource, each with the path of its file."""
    mine = frozenset(resource.processors)
    pattern = state.place(resource.key, "*")
    found = ((path, _occupant(path)) for path in sorted(pattern.parent.glob(pattern.name)))
    runs = [(path, each) for path, each in found if each is not None]
    return [(path, each) for path, each in runs if not each.processors or each.processors & mine]


def _has_turns(device: DeviceInfo) -> bool:
    """Whether runs can take turns on a device: a GPU must take processes of several runs at once."""
    return device.on_processors or device.compute_mode in (None, "default")


def _with_all_memory(device: DeviceInfo, beside: Iterable[tuple[str, Occupant]]) -> DeviceInfo:
    """A GPU with the memory for all runs together: the other runs have a part of it, so less of it is free now."""
    if device.on_processors:
        return device
    found = [min(each.memory_bytes, device.total_bytes) for name, each in beside if name == device.name]
    return replace(device, memory_bytes=max([device.memory_bytes, *found]))


def _key(gpu: DeviceInfo) -> str:
    return gpu.uuid or gpu.name


def _resources(devices: tuple[DeviceInfo, ...]) -> list[_Resource]:
    """Resources of devices, in the one order in which every run locks them."""
    gpus = {_Resource(_key(each), each.name) for each in devices if not each.on_processors}
    parts = [each.processors or os.sched_getaffinity(0) for each in devices if each.on_processors]
    processors = {number for part in parts for number in part}
    return sorted([*gpus, *([_Resource(PROCESSORS, PROCESSORS, tuple(sorted(processors)))] if processors else [])])


def _beside(device: str, other: Occupant, takes_turns: bool) -> str:
    """Line that says with which run a device is shared."""
    if not takes_turns:
        return f"{device} is shared with {other}: both are slower, and what is measured is that of both"
    instead = f"; {_submit(other.queue)} gives that queue the jobs instead" if other.queue else ""
    return f"takes turns on {device} with {other}, for {SLICE_S:g} s each{instead}"


def _submit(queue: str) -> str:
    return f"`ecoshare submit{'' if queue == 'default' else f' --queue {queue}'}`"


@contextmanager
def _first_in_line(
    resource: _Resource, state: StateFolder, admission: DeviceAdmission, say: Callable[[str], None]
) -> Iterator[None]:
    """Context manager: the right to be admitted next. One run has it at a time, and the other runs poll for it."""
    until_s = time.monotonic() + _WITHIN_S
    path = state.queue(resource.key)
    try:
        file = open_lock(path)
    except OSError as error:
        raise UnfitEnvironment(f"cannot lock {path}: {error.strerror}", STATE_HINT) from error
    try:
        told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if admission is DeviceAdmission.REFUSE and time.monotonic() > until_s:
                    raise _refused(resource, _occupants(resource, state)) from None
            is_long = admission is DeviceAdmission.TURNS and time.monotonic() > until_s
            if not told and (admission is DeviceAdmission.WAIT or is_long):
                told = True
                say(f"another run waits for {resource.name} already: this one is behind it")
            time.sleep(_LOOK_S)
        yield
    finally:
        os.close(file)


def _wait_for_the_end(
    resource: _Resource, state: StateFolder, admission: DeviceAdmission, say: Callable[[str], None]
) -> bool:
    """Wait until no other run uses a resource, or refuse; return whether another run used it."""
    has_waited, told, is_joined = False, list[Occupant](), admission is DeviceAdmission.TURNS
    until_s = time.monotonic() + _ENDS_WITHIN_S
    while others := [each for each in _occupants(resource, state) if not (is_joined and each.takes_turns)]:
        has_waited = True
        is_ending = not any(each.is_conducted for each in others) and time.monotonic() < until_s
        if admission is DeviceAdmission.REFUSE and not is_ending:
            raise _refused(resource, others)
        if not is_ending and others[0] not in told:
            told.append(others[0])
            say(_waits(others[0], resource))
        time.sleep(_LOOK_S)
    return has_waited


def _waits(other: Occupant, resource: _Resource) -> str:
    """Line that says for which run another one waits. A queue does not end by itself."""
    if other.queue:
        option = "" if other.queue == "default" else f" --queue {other.queue}"
        until = f" until `ecoshare down{option}`; {_submit(other.queue)} gives it jobs instead"
    else:
        until = "; `--no-wait` refuses, `--share-device` runs beside it"
    return f"waits for {other}, which uses {resource.name}{until}"


def _refused(resource: _Resource, others: Sequence[Occupant]) -> UnfitEnvironment:
    user = str(others[0]) if others else "another run"
    return UnfitEnvironment(f"{resource.name} is used by {user}", _HINT)


def _made(path: Path) -> int:
    """Make and lock a new file; return its descriptor."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    os.fchmod(file, 0o644)  # despite the umask: other users must be able to read it
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def _occupant(path: Path) -> Occupant | None:
    """Run that holds a file. If no run holds it, the file is removed and the result is None."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        with contextlib.suppress(OSError):  # the file is another user's
            path.unlink()
        return None
    except BlockingIOError:
        return _read(os.pread(file, _LARGEST_BYTES, 0))
    finally:
        os.close(file)


def _read(content: bytes) -> Occupant:
    """Parsed record. It is empty if it is still being written, or if it is invalid: any user may have made it."""
    try:
        record = _Record.model_validate(documents.parse(content))
    except ValueError:
        return Occupant()
    run = record.run if record.run.isprintable() else ascii(record.run)[1:-1]  # keeps it on one line
    return Occupant(
        record.pid,
        run,
        frozenset(record.processors),
        record.takes_turns,
        record.memory_bytes,
        record.claimed_bytes,
        MemoryWish(record.wanted_bytes, record.needed_bytes, record.since_s, record.pid),
        record.idle_w,
    )


_GPUS = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
"""Variables that name the GPUs which Slurm has allocated whole."""

_FREQUENCY = "SLURM_GPU_FREQ"
"""Variable with the clocks that Slurm itself sets in an allocation."""


def why_not_allocated(devices: Sequence[DeviceInfo], environment: Mapping[str, str] = os.environ) -> str:
    """Reason why other work of Slurm may use devices, or why Slurm sets them, one line; empty if there is none.

    Args:
        devices: Devices of this machine, of one kind.
        environment: Environment of a process of the job. Without Slurm's variables there is no reason.
    """
    if "SLURM_JOB_ID" not in environment:
        return ""
    if devices[0].on_processors:
        allocated, there = environment.get("SLURM_CPUS_ON_NODE", "0"), os.cpu_count()
        return "" if allocated == str(there) else f"Slurm has allocated {allocated} of {there} processors"
    if not any(environment.get(name) for name in _GPUS):
        return "Slurm has allocated no whole GPU"
    if asked := environment.get(_FREQUENCY):
        return f"Slurm sets the clocks of this allocation (--gpu-freq={asked})"
    return ""


def why_not_alone(devices: Sequence[DeviceInfo], shares_processors: bool) -> str:
    """Reason why other work may use the devices of a node, or sets them, one line; empty if there is none.

    Args:
        devices: Devices of the node, of one kind.
        shares_processors: Whether the engine gives the processors to other work, too.
    """
    if devices[0].on_processors and shares_processors:
        return "other work of the cluster may use the processors"
    return why_not_allocated(devices) or _others_on(devices)


def _others_on(devices: Sequence[DeviceInfo]) -> str:
    """Reason in words if programs are on the GPUs before the jobs of the run begin; empty if there are none."""
    for device in devices:
        with contextlib.closing(open_device(device)) as opened:
            if found := opened.processes():
                return f"{counted(len(found), 'other process', 'other processes')} on {device.name}"
    return ""
