"""Folder of a queue. Other users can neither read it nor enter it.

::

    <state folder>/queues/<name>/      mode 0700; `ecoshare.devices.control.state_folder` says where
        lock            held (flock) by the process that serves the queue; has its process id
        queue.db        what was submitted, and how it ended
        socket          where the queue is served; mode 0600
        token, address  what clients over TCP need, while the queue listens there; mode 0600
        options.json    options of the last `ecoshare up`, for the next `up --resume`
        up.log          output of a queue in the background; up.log.1 is that of the one before
        runs/           run folders of the queue
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ecoshare.base import documents
from ecoshare.base.disk import locked_alone
from ecoshare.devices.control.state_folder import STATE_HINT, StateFolder
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.jobs.fields import MAX_NAME_LENGTH, is_name
from ecoshare.lane.files import make_folder

DEFAULT_NAME = "default"

_MOST_LOCK_BYTES = 64
_LOOKS_S = 0.2
"""Time (s) within which looks of clients at the lock of a queue are over. Each look whether the queue is up (`is_up`)
holds it for some microseconds, so one try is not enough."""


@dataclass(frozen=True, slots=True)
class QueueFolder:
    """Paths of one queue.

    Attributes:
        name: Name of the queue.
        path: The folder.
    """

    name: str
    path: Path

    @classmethod
    def of(cls, name: str) -> QueueFolder:
        """Folder of this user's queue with this name, which may not exist.

        Raises:
            UsageError: The text cannot be the name of a queue.
        """
        if not is_name(name):
            expected = f"up to {MAX_NAME_LENGTH} letters, digits, '.', '_' or '-' that do not begin with '.' or '-'"
            raise UsageError(f"--queue {name!r}: expected {expected}")
        return cls(name, StateFolder.of_this_user().journals / "queues" / name)

    @property
    def database(self) -> Path:
        """Database of the jobs."""
        return self.path / "queue.db"

    @property
    def socket(self) -> Path:
        """Socket that the queue is served on."""
        return self.path / "socket"

    @property
    def token(self) -> Path:
        """Token of clients over TCP."""
        return self.path / "token"

    @property
    def address(self) -> Path:
        """URL at which the queue is served over TCP."""
        return self.path / "address"

    @property
    def options(self) -> Path:
        """Options of the last session."""
        return self.path / "options.json"

    @property
    def log(self) -> Path:
        """Output of a queue in the background."""
        return self.path / "up.log"

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def _lock(self) -> Path:
        return self.path / "lock"

    def make(self) -> None:
        """Make the folder if it is missing, and keep others out of it.

        Raises:
            UnfitEnvironment: The folder cannot be made, belongs to another user, or is a link.
        """
        try:
            if not self.path.is_symlink():
                make_folder(self.path)
            with own_folder(self.path, closed=False) as folder:
                Path(f"/proc/self/fd/{folder}").chmod(0o700)
        except OSError as error:
            raise UnfitEnvironment(f"cannot write {self.path}: {error.strerror or error}", STATE_HINT) from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Context manager: make the folder, and be the one process that serves the queue.

        Raises:
            UsageError: Another process serves it.
            UnfitEnvironment: The folder cannot be made or locked, or belongs to another user.
        """
        self.make()
        try:
            with own_folder(self.path) as folder:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                file = os.open(self._lock.name, flags, 0o600, dir_fd=folder)
            info = os.fstat(file)
            if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1:
                os.close(file)
                what = "has another name, too" if stat.S_ISREG(info.st_mode) else "is not a regular file"
                raise UnfitEnvironment(f"{self._lock} {what}", "remove it")
        except OSError as error:
            raise UnfitEnvironment(f"cannot write {self.path}: {error.strerror or error}", STATE_HINT) from error
        try:
            if not locked_alone(file, _LOOKS_S, _LOOKS_S / 20):
                raise UsageError(
                    f"the queue {self.name!r} is up already{self._by()}", f"`ecoshare down{self.option}` ends it"
                )
            os.ftruncate(file, 0)
            os.write(file, str(os.getpid()).encode())
            try:
                yield
            finally:
                os.ftruncate(file, 0)  # the number may soon be that of another process
        finally:
            os.close(file)

    def clear(self) -> None:
        """Remove all that the folder has, and keep the queue from being opened meanwhile.

        Raises:
            UsageError: The queue is up.
            UnfitEnvironment: There is no such queue, or files cannot be removed.
        """
        if not self.path.is_dir():
            raise UnfitEnvironment(f"there is no queue {self.name!r}")
        with self.locked():
            try:
                for path in self.path.iterdir():
                    if path == self._lock:
                        continue
                    if path.is_dir() and not path.is_symlink():
                        shutil.rmtree(path)
                    else:
                        path.unlink()
            except OSError as error:
                raise UnfitEnvironment(f"cannot remove {self.path}: {error.strerror or error}") from error

    def is_up(self) -> bool:
        """Whether a process serves the queue."""
        try:
            with documents.open_own(self._lock) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def _by(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            return f" (process {int(documents.read_own(self._lock, _MOST_LOCK_BYTES))})"
        return ""

    @property
    def option(self) -> str:
        """Option that names the queue on a command line, with a blank before it; empty for the default queue."""
        return "" if self.name == DEFAULT_NAME else f" --queue {self.name}"


@contextlib.contextmanager
def own_folder(path: Path, closed: bool = True) -> Iterator[int]:
    """Context manager: the descriptor of a folder that is this user's. It stays that one if its path becomes another's.

    Args:
        path: Path of the folder.
        closed: Whether no other user may be able to put files there.

    Raises:
        OSError: The folder cannot be opened.
        UnfitEnvironment: It is another user's, a link leads to it, or others can write there.
    """
    if path.is_symlink():
        raise UnfitEnvironment(f"{path} is a link, which can lead anywhere", STATE_HINT)
    folder = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        status = os.fstat(folder)
        if status.st_uid != os.geteuid():
            raise UnfitEnvironment(f"{path} belongs to user {status.st_uid}", STATE_HINT)
        if closed and status.st_mode & 0o022:
            raise UnfitEnvironment(f"other users can write to {path}", f"`chmod 700 {shlex.quote(str(path))}`")
        yield folder
    finally:
        os.close(folder)


@contextlib.contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """Context manager: an address of at most some dozen characters for a socket, as the kernel wants it.

    Raises:
        OSError: The folder of the socket cannot be opened.
        UnfitEnvironment: The folder is not one in which only this user can have put the socket.
    """
    with own_folder(path.parent) as folder:
        yield f"/proc/self/fd/{folder}/{path.name}"
