"""Which runs use a device: a second one waits, is refused, or shares it on purpose.

::

    /run/lock/ecoshare-<device>.queue         held (flock) by the run that is let in next
    /run/lock/ecoshare-<device>.<token>.run   held by a run as long as it uses the device; says which run it is

Each run plans all memory that is free, and measures as if it were alone: two at once disturb each other. A lock ends
with the process that holds it, however that ends; a file without a lock is of a run that is over.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from pydantic import BaseModel, Field, NonNegativeInt

from ecoshare.common import documents
from ecoshare.devices.discovery import DeviceInfo, find
from ecoshare.devices.state_folder import STATE_HINT, StateFolder, described, open_lock
from ecoshare.errors import UnfitEnvironment, UsageError

_LOOK_S, _WITHIN_S = 0.2, 2.0
"""Time between looks of a run that waits, and time for another one to be let in."""

_ENDS_WITHIN_S = 10.0
"""Time that processes of a run may take to end when the one that conducted it was killed: they hold its lock, too."""

_LARGEST_BYTES = 1 << 16
"""Of a record, which may be another user's."""

_HINT = "`--wait` runs when it has ended; `--share-device` runs beside it, with the memory that is free now"


class DeviceAdmission(Enum):
    """What a run does where another one uses its device."""

    REFUSE = "refuse"
    WAIT = "wait"
    SHARE = "share"

    @classmethod
    def of(cls, wait: bool = False, share_device: bool = False) -> DeviceAdmission:
        """What a user asks for.

        Raises:
            UsageError: Both at once.
        """
        if wait and share_device:
            raise UsageError("to wait for the device and to share it exclude each other: ask for one of them")
        return cls.WAIT if wait else cls.SHARE if share_device else cls.REFUSE


@dataclass(frozen=True, slots=True)
class Occupant:
    """A run that uses a device.

    Attributes:
        pid: Process that conducts it; 0 where that is not known.
        run: Run folder; empty until it has one.
        processors: Those that it may use; empty for a run on a GPU.
    """

    pid: int = 0
    run: str = ""
    processors: frozenset[int] = frozenset()

    @property
    def is_conducted(self) -> bool:
        """Whether the process that conducts the run is there; also where its number is not known."""
        return not self.pid or Path(f"/proc/{self.pid}").exists()

    def __str__(self) -> str:
        process = ""
        with contextlib.suppress(OSError):
            process = described(self.pid) if self.pid else ""
        if self.run and process:
            return f"the run {self.run} ({process})"
        return f"the run {self.run}" if self.run else process or "another run"


class _Record(BaseModel):
    """What the file of a run says; see `Occupant`."""

    pid: NonNegativeInt
    run: str = Field(max_length=4096)
    processors: list[NonNegativeInt]


class Occupancy:
    """A run's use of its device, until it ends.

    Attributes:
        device: As it was when the run was let in.
    """

    def __init__(self, device: DeviceInfo, state: StateFolder) -> None:
        """Begin to use a device.

        Raises:
            OSError: The file cannot be made.
        """
        self.device = device
        while True:
            self._path = state.place(_key(device), secrets.token_hex(8))
            self._file = _made(self._path)
            self._write("")
            with contextlib.suppress(FileNotFoundError):
                if self._path.stat().st_ino == os.fstat(self._file).st_ino:
                    return
            os.close(self._file)  # another run took it for a dead one's, before it was locked

    def tell(self, run: Path) -> None:
        """Name the run folder, for runs that wait or are refused."""
        self._write(str(run.absolute()))

    def end(self) -> None:
        """Leave the device to others."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        fcntl.flock(self._file, fcntl.LOCK_UN)  # processes that were forked meanwhile have the lock, too
        os.close(self._file)

    def _write(self, run: str) -> None:
        processors = sorted(os.sched_getaffinity(0)) if self.device.kind == "cpu" else []
        content = json.dumps({"pid": os.getpid(), "run": run, "processors": processors}).encode()
        with contextlib.suppress(OSError):  # a full disk: others are told less
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, content, 0)


@contextmanager
def occupied(wanted: str | None, admission: DeviceAdmission, say: Callable[[str], None]) -> Iterator[Occupancy]:
    """The use of a device by a run, until the context ends.

    Args:
        wanted: Name of the device; None for the best one that is here.
        admission: What to do where another run uses it.
        say: Shows a note to the user.

    Raises:
        UsageError: The name of the device has another form.
        UnfitEnvironment: There is no such device, or another run uses it.
    """
    state, device = StateFolder.of_this_user(), find(wanted)
    with contextlib.ExitStack() as line:
        if admission is not DeviceAdmission.SHARE:
            line.enter_context(_first_in_line(device, state, admission, say))
            if _wait_for_the_end(device, state, admission, say):
                device = find(device.name)  # its memory is what is free by now
        beside = occupants(device, state)
        try:
            occupancy = Occupancy(device, state)
        except OSError as error:
            raise UnfitEnvironment(f"cannot write to {state.locks}: {error.strerror or error}") from error
    for occupant in beside:
        say(f"{device.name} is shared with {occupant}: both are slower, and what is measured is that of both")
    try:
        yield occupancy
    finally:
        occupancy.end()


def occupants(device: DeviceInfo, state: StateFolder) -> list[Occupant]:
    """Runs that use a device now; on processors those that may use some of the same ones."""
    mine = os.sched_getaffinity(0)
    pattern = state.place(_key(device), "*")
    found = [_occupant(path) for path in sorted(pattern.parent.glob(pattern.name))]
    return [each for each in found if each is not None and (not each.processors or each.processors & mine)]


@contextmanager
def _first_in_line(
    device: DeviceInfo, state: StateFolder, admission: DeviceAdmission, say: Callable[[str], None]
) -> Iterator[None]:
    """The right to be let in next: runs that wait do so in the order in which they came."""
    until_s = time.monotonic() + _WITHIN_S
    path = state.queue(_key(device))
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
                    raise _refused(device, occupants(device, state)) from None
            if admission is DeviceAdmission.WAIT and not told:
                told = True
                say(f"another run waits for {device.name} already: this one is behind it")
            time.sleep(_LOOK_S)
        yield
    finally:
        os.close(file)


def _wait_for_the_end(
    device: DeviceInfo, state: StateFolder, admission: DeviceAdmission, say: Callable[[str], None]
) -> bool:
    """Return when no other run uses a device; whether one did."""
    has_waited, told = False, list[Occupant]()
    until_s = time.monotonic() + _ENDS_WITHIN_S
    while others := occupants(device, state):
        has_waited = True
        is_ending = not any(each.is_conducted for each in others) and time.monotonic() < until_s
        if admission is DeviceAdmission.REFUSE and not is_ending:
            raise _refused(device, others)
        if not is_ending and others[0] not in told:
            told.append(others[0])
            say(f"waits for {others[0]}, which uses {device.name}")
        time.sleep(_LOOK_S)
    return has_waited


def _refused(device: DeviceInfo, others: Sequence[Occupant]) -> UnfitEnvironment:
    user = str(others[0]) if others else "another run"
    return UnfitEnvironment(f"{device.name} is used by {user}", _HINT)


def _made(path: Path) -> int:
    """A new file that this process has locked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    os.fchmod(file, 0o644)  # whatever the umask: others must be able to read it
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def _occupant(path: Path) -> Occupant | None:
    """The run that holds a file; None where none does, and the file goes."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        with contextlib.suppress(OSError):  # another user's
            path.unlink()
        return None
    except BlockingIOError:
        return _read(os.pread(file, _LARGEST_BYTES, 0))
    finally:
        os.close(file)


def _read(content: bytes) -> Occupant:
    """A record; one without content where it is being written, or is none of ours: any user may have made it."""
    try:
        record = _Record.model_validate(documents.parse(content))
    except ValueError:
        return Occupant()
    run = record.run if record.run.isprintable() else ascii(record.run)[1:-1]  # in one line
    return Occupant(record.pid, run, frozenset(record.processors))


def _key(device: DeviceInfo) -> str:
    return device.uuid or device.name
