"""Replaces a file as a whole: a reader sees the old content or the new content, never a part.

::

    path.new   created ──► written ──► synced, if asked ──► renamed to path
                  │           │              │                    │
                  └───────────┴──────────────┴── an error:        └── every reader that opens path now
                                                 path.new goes,       gets the new content
                                                 path stays

Every layer may import this module. It uses the standard library only, since `lane/` runs inside users' processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol


def atomic_write(
    path: Path, content: str | bytes, *, sync: bool = False, mode: int = 0o666, concurrent: bool = False
) -> None:
    """Write `content` beside `path` and rename it to `path`; text is encoded in UTF-8.

    Args:
        path: File to replace.
        content: New content of the file.
        sync: Whether the content is on the disk before the rename. A power cut may still undo the rename itself. A
            caller that must rule that out syncs the folder as well.
        mode: Permissions of a new file, less the umask.
        concurrent: Whether several threads or processes may write `path` at the same time. Each then uses a temporary
            name of its own, `.<stem>-<random>.new`. Without it the name is `<name>.new`. A killed writer leaves its
            temporary file behind: the next writer removes `<name>.new`, and nothing removes a random name.

    Raises:
        OSError: No room or no permission. `path` is unchanged.
    """
    data = content.encode() if isinstance(content, str) else content
    if concurrent:
        beside = path.with_name(f".{path.stem}-{os.urandom(4).hex()}.new")
    else:
        beside = path.with_name(f"{path.name}.new")
        beside.unlink(missing_ok=True)  # a job may have put a link or a pipe there
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


class HasDescriptor(Protocol):
    """An open file."""

    def fileno(self) -> int:
        """Descriptor of the file."""
        ...


def locked_alone(file: int | HasDescriptor, within_s: float, poll_s: float) -> bool:
    """Lock a file for this process alone (flock), and return whether that was possible in time.

    Args:
        file: The file.
        within_s: Longest time (s) to wait.
        poll_s: Time (s) between two tries.

    Raises:
        OSError: The file system has no locks.
    """
    until_s = time.monotonic() + within_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until_s:
                return False
            time.sleep(poll_s)


AnyPath = str | os.PathLike[str]
"""Path as a caller of the Python API gives it."""

RUNS: Final = Path("ecoshare-runs")
"""Default parent of run folders, in the working folder. No other tool uses this name."""

SHARED_MEMORY = Path("/dev/shm")
"""File system of Linux in memory. Every user may write to it; some containers lack it, or mount it read-only."""


def memory_folder() -> Path:
    """`SHARED_MEMORY` if this process may write there, else the folder for temporary files."""
    return SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())


@contextlib.contextmanager
def folder_below(root: Path, names: Sequence[str]) -> Iterator[Path]:
    """Context manager: a folder below another one, as a path that no link can lead elsewhere.

    Missing folders are made, for this user only. A link in the place of one, which a job may have made, is removed.

    Args:
        root: A folder that only this user can change.
        names: Names of the folders from there on.

    Raises:
        OSError: No room, no permission, or another file has the name of a folder.
    """
    folder = os.open(root, _FOLDER)
    try:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=folder)
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=folder)
            above, folder = folder, os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(above)
        yield Path(f"/proc/self/fd/{folder}")
    finally:
        os.close(folder)


_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
