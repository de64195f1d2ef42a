"""The state folder of a user, and the paths of the journals and locks of devices.

::

    ECOSHARE_STATE ──► /var/lib/ecoshare, for root ──► ~/.local/state/ecoshare, or in XDG_STATE_HOME
        GPU-….json                      journals; queues/, shipped/ and notes/ are beside them
    /run/lock/ecoshare-GPU-….lock       held (flock) by the one process, of any user, that may set this device;
                                        in /dev/shm if users may not write to /run/lock

Neither is in a run folder, since the next run must find them from any folder. `ECOSHARE_STATE` names one folder for
both. Root has a fixed one: `sudo` may keep the HOME of its caller or not, and a journal must be found again.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import platformdirs

from ecoshare.base.device import DeviceInfo
from ecoshare.base.disk import SHARED_MEMORY, locked_alone

STATE_HINT = "ECOSHARE_STATE names another folder"

_LOCKS = (Path("/run/lock"), SHARED_MEMORY)
"""Candidates for the locks. The first counts in which each user may make files and remove only their own."""


@dataclass(frozen=True, slots=True)
class StateFolder:
    """Two folders: one for a user's journals, one for the locks of all users."""

    journals: Path
    locks: Path

    @classmethod
    def of_this_user(cls) -> StateFolder:
        """Folders that this process uses."""
        if given := os.environ.get("ECOSHARE_STATE"):
            return cls(Path(given), Path(given))
        journals = platformdirs.user_state_path("ecoshare", use_site_for_root=True)
        return cls(journals, next((folder for folder in _LOCKS if _is_everybodys(folder)), journals))

    def journal(self, device: str) -> Path:
        """Path of the journal of the device with this key."""
        return self.journals / f"{_plain(device)}.json"

    def all_journals(self) -> Iterator[Path]:
        """Paths of the journals that exist, sorted.

        Raises:
            OSError: The folder cannot be read.
        """
        try:
            names = sorted(entry.name for entry in os.scandir(self.journals))
        except FileNotFoundError:
            return
        yield from (self.journals / name for name in names if name.endswith(".json"))

    def lock(self, device: str) -> Path:
        """Path of the lock of the device with this key."""
        return self.locks / f"ecoshare-{_plain(device)}.lock"

    def queue(self, device: str) -> Path:
        """Path of the lock that the next admitted run holds; see `occupancy`."""
        return self.locks / f"ecoshare-{_plain(device)}.queue"

    def claims(self, device: str) -> Path:
        """Path of the lock under which a claim to the memory of a device grows; see `occupancy`."""
        return self.locks / f"ecoshare-{_plain(device)}.claims"

    def place(self, device: str, token: str) -> Path:
        """Path of the file of a run that uses the device. `token` distinguishes runs, and may be `*`."""
        return self.locks / f"ecoshare-{_plain(device)}.{token}.run"


_POLL_S = 0.01
"""Time (s) between two tries to take a lock."""


def open_lock(path: Path) -> int:
    """Open a file that processes of all users lock, and return its descriptor. A missing file is made.

    Any user can put something else there. A FIFO could block the open for ever, and a link would lead elsewhere.

    Raises:
        OSError: The file cannot be opened or made, or it is no regular file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:  # another user's lock file can be read and locked, but not written
        file = os.open(path, flags)
    except FileNotFoundError:
        file = os.open(path, flags | os.O_CREAT, 0o644)
        if os.fstat(file).st_uid == os.geteuid():  # else another user made it meanwhile
            os.fchmod(file, 0o644)  # despite the umask: other users must be able to lock it
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is no regular file, and none of ecoshare's: remove it", str(path))
    return file


class DeviceLock:
    """The right to set one device. The lock ends with the process that holds it, however that process ends."""

    def __init__(self, path: Path, within_s: float = 0.0) -> None:
        """Take the lock.

        Args:
            path: File of the lock.
            within_s: Longest time (s) to wait for it.

        Raises:
            BlockingIOError: Another process has it; `holder` names that process.
            OSError: The file of the lock cannot be opened or made.
        """
        self._file = open_lock(path)
        try:
            if not locked_alone(self._file, within_s, _POLL_S):
                raise BlockingIOError(errno.EAGAIN, "another process has it", str(path))
        except BaseException:
            os.close(self._file)
            raise

    def release(self) -> None:
        """Release the lock. The file stays.

        If it were removed, two processes could hold locks on two files of one name.
        """
        os.close(self._file)


def _is_everybodys(folder: Path) -> bool:
    try:
        mode = folder.stat().st_mode
    except OSError:
        return False
    return bool(mode & stat.S_ISVTX and mode & stat.S_IWOTH)


def in_use(path: Path) -> str | None:
    """Process that has a lock, in the words of `holder`; None if no process has it. Makes no file."""
    if not path.exists():
        return None
    try:
        DeviceLock(path).release()
    except BlockingIOError:
        return holder(path)
    except OSError:
        return None
    return None


def holder(path: Path) -> str:
    """Process that has a lock, in the words of `described`; `another process` if it is unknown."""
    try:
        inode = path.stat().st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if "FLOCK" in fields and fields[-3].rpartition(":")[2] == str(inode) and "->" not in fields:
                return described(int(fields[-4]))
    except (OSError, ValueError, IndexError):
        pass
    return "another process"


@cache
def user_name(number: int) -> str:
    """Name of a user, looked up once: the names may be in a directory of the network."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def described(pid: int) -> str:
    """Process in words, such as `ann's process 4711 (ecoshare run jobs.yaml)`.

    Raises:
        OSError: There is no such process.
    """
    folder = Path(f"/proc/{pid}")
    user = user_name(folder.stat().st_uid)
    words = [word.decode(errors="replace") for word in (folder / "cmdline").read_bytes().split(b"\0") if word]
    is_ours = words[:1] != [] and words[0].startswith("ecoshare: ")  # the whole line is one word
    short = words if is_ours else [Path(word).name if place < 2 else word for place, word in enumerate(words)]
    if len(short) > 1 and re.fullmatch(r"python[\d.]*", short[0]):
        short = short[1:]
    if short[:1] == ["-c"]:  # code in one word
        short = ["python -c ..."]
    return f"{user}'s process {pid} ({' '.join(short)[:120]})"


def key(device: DeviceInfo) -> str:
    """Key of a device's journal and lock: the UUID of a GPU, or a name for this machine's processors.

    Machines may share a home folder, so the processors of each machine need a key of their own.
    """
    if device.uuid is not None:
        return device.uuid
    try:
        machine = Path("/etc/machine-id").read_text().strip()
    except OSError:
        machine = ""
    return f"processors-{machine or socket.gethostname()}"


def _plain(device: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", device)
