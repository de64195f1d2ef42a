"""Where it is kept what was changed on a device, and who may change it now.

::

    /var/lib/ecoshare/GPU-….json        journals of root; of everybody else in ~/.local/state/ecoshare
    /run/lock/ecoshare-GPU-….lock       held (flock) by the one process that may set this device, whoever it
                                        belongs to; in /dev/shm where users may not write there

Neither is in a run folder: the next run, whatever its folder, must find them. `ECOSHARE_STATE` names one
folder for both.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from ecoshare.common.folders import SHARED_MEMORY

STATE_HINT = "ECOSHARE_STATE names another folder"

_LOCKS = (Path("/run/lock"), SHARED_MEMORY)
"""Where every user may make a file, and nobody may remove another one's; the first that is so."""


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The two places of a user's journals and everybody's locks."""

    journals: Path
    locks: Path

    @classmethod
    def of_this_user(cls) -> StateFolder:
        """The folders that count for this process."""
        if given := os.environ.get("ECOSHARE_STATE"):
            return cls(Path(given), Path(given))
        journals = platformdirs.user_state_path("ecoshare", use_site_for_root=True)
        return cls(journals, next((folder for folder in _LOCKS if _is_everybodys(folder)), journals))

    def journal(self, device: str) -> Path:
        """The journal of the device with this key."""
        return self.journals / f"{_plain(device)}.json"

    def all_journals(self) -> Iterator[Path]:
        """Those that are there.

        Raises:
            OSError: The folder cannot be read.
        """
        try:
            names = sorted(entry.name for entry in os.scandir(self.journals))
        except FileNotFoundError:
            return
        yield from (self.journals / name for name in names if name.endswith(".json"))

    def lock(self, device: str) -> Path:
        """The lock of the device with this key."""
        return self.locks / f"ecoshare-{_plain(device)}.lock"

    def queue(self, device: str) -> Path:
        """The lock of the run that is let in next; see `occupancy`."""
        return self.locks / f"ecoshare-{_plain(device)}.queue"

    def place(self, device: str, token: str) -> Path:
        """The file of a run that uses the device; `token` tells several apart, and may be `*`."""
        return self.locks / f"ecoshare-{_plain(device)}.{token}.run"


def open_lock(path: Path) -> int:
    """A descriptor of a file that processes of all users lock; it is made where there is none.

    Anybody can put something else there. A FIFO would keep who opens it waiting for ever, and a link lead elsewhere.

    Raises:
        OSError: It cannot be made, or what is there is no regular file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:  # another user's lock file can be read and locked, not written
        file = os.open(path, flags)
    except FileNotFoundError:
        file = os.open(path, flags | os.O_CREAT, 0o644)
        if os.fstat(file).st_uid == os.geteuid():  # else another user has made it in between
            os.fchmod(file, 0o644)  # whatever the umask: others must be able to lock it, too
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is no regular file, and none of ecoshare's: remove it", str(path))
    return file


class DeviceLock:
    """The right to set one device. It ends with the process that holds it, however that ends."""

    def __init__(self, path: Path) -> None:
        """Take it.

        Raises:
            BlockingIOError: Somebody else has it; `holder` tells who.
            OSError: It cannot be made.
        """
        self._file = open_lock(path)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(self._file)
            raise

    def release(self) -> None:
        """Give it up. The file stays: removing it could part two who hold locks on different files of one name."""
        os.close(self._file)


def _is_everybodys(folder: Path) -> bool:
    try:
        mode = folder.stat().st_mode
    except OSError:
        return False
    return bool(mode & stat.S_ISVTX and mode & stat.S_IWOTH)


def in_use(path: Path) -> str | None:
    """Who has a lock, as `holder` says it; None where nobody has. Makes no file."""
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
    """Who has a lock: `ann's process 4711 (ecoshare run jobs.yaml)`, as far as it can be told."""
    try:
        inode = path.stat().st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if "FLOCK" in fields and fields[-3].rpartition(":")[2] == str(inode) and "->" not in fields:
                return described(int(fields[-4]))
    except (OSError, ValueError, IndexError):
        pass
    return "another process"


def described(pid: int) -> str:
    """A process in words: `ann's process 4711 (ecoshare run jobs.yaml)`.

    Raises:
        OSError: There is no such process.
    """
    folder = Path(f"/proc/{pid}")
    user_id = folder.stat().st_uid
    try:
        user = pwd.getpwuid(user_id).pw_name
    except KeyError:
        user = f"user {user_id}"
    words = [word.decode(errors="replace") for word in (folder / "cmdline").read_bytes().split(b"\0") if word]
    short = [Path(word).name if place < 2 else word for place, word in enumerate(words)]
    if len(short) > 1 and re.fullmatch(r"python[\d.]*", short[0]):
        short = short[1:]
    if short[:1] == ["-c"]:  # a program in one word; of ours, the module that it runs is named behind it
        short = [next((word for word in short[2:] if word.startswith("ecoshare.")), "python -c ...")]
    return f"{user}'s process {pid} ({' '.join(short)[:120]})"


def _plain(device: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", device)
