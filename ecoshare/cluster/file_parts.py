"""Parts of files of a run folder, for machines that share no file system.

::

    machine of a job                          machine of the run
    run folder ── FileSender ── FilePart ──► write_part ── run folder

A file that only grows is sent once, part by part. One that is replaced or changed is sent again. Files of a job are
sent some times a second, and all that is left of them before the run hears of an event of that job.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ecoshare.cluster.agent_messages import FilePart
from ecoshare.common.disk import atomic_write, folder_below
from ecoshare.common.documents import open_own
from ecoshare.lane.files import make_folder

MOST_BYTES = 64 << 20
"""Most bytes of a file that are sent. The rest stays where it was written."""

_PART_BYTES = 256 << 10
_AT_ONCE_BYTES = 1 << 20
"""Most bytes of a file in one look, so that a job which writes much delays no other message."""

_HEAD_BYTES = 64 << 10
"""A file of the same inode that still begins with these bytes has only grown."""

_BEING_WRITTEN = ".new"
"""Suffix of a file that takes the place of another one as soon as it is whole; see `atomic_write`."""

_FOLDERS = ("jobs", "nodes")
"""Folders of a run that hold files of other machines."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """What was sent of a file: up to `end` (bytes), with its inode, size and time (ns) at that moment.

    Attributes:
        head: Digest of its first bytes, as many as `head_bytes`.
    """

    inode: int
    size: int
    changed_ns: int
    end: int
    head_bytes: int
    head: bytes


class FileSender:
    """Sends the files below a run folder.

    Attributes:
        cut: Paths of the files that are too long to be sent whole.
    """

    def __init__(self, run: Path, send: Callable[[FilePart], None]) -> None:
        """Nothing is sent yet.

        Args:
            run: The run folder of this machine.
            send: Sends a part.
        """
        self._run, self._send = run, send
        self._sent: dict[Path, _Sent] = {}
        self._ignored = set[Path]()
        self.cut: set[str] = set()

    def look(self, below: str, most_bytes: int = _AT_ONCE_BYTES) -> None:
        """Send what is new in a folder.

        Args:
            below: Path of the folder in the run folder.
            most_bytes: Most bytes of a file that are sent now.
        """
        for path in sorted((self._run / below).rglob("*")):
            is_own = path.is_file() and not path.is_symlink() and path not in self._ignored
            if is_own and path.suffix != _BEING_WRITTEN:
                self._look(path, most_bytes)

    def finish(self, below: str) -> None:
        """Send all that is left in a folder."""
        self.look(below, MOST_BYTES)

    def ignore(self, path: str) -> None:
        """Do not send a file."""
        self._ignored.add(self._run / path)

    def forget(self, job: str) -> None:
        """Forget the files of a job, which will be written anew, if at all."""
        folder = self._run / "jobs" / job
        self._sent = {path: sent for path, sent in self._sent.items() if not path.is_relative_to(folder)}
        self._ignored = {path for path in self._ignored if not path.is_relative_to(folder)}

    def _look(self, path: Path, most_bytes: int) -> None:
        try:
            file = open_own(path)
        except OSError:  # it is gone by now, or another file has its place
            return
        with file:
            status, before = os.fstat(file.fileno()), self._sent.get(path)
            now = status.st_ino, status.st_size, status.st_mtime_ns
            head, done = file.read(_HEAD_BYTES), 0
            if before is not None:
                if now == (before.inode, before.size, before.changed_ns) and before.end == before.size:
                    return
                if before.inode == status.st_ino and before.end <= status.st_size and _is_head(head, before):
                    done = before.end
            name = path.relative_to(self._run).as_posix()
            for part, end in _parts(file, name, done, min(done + most_bytes, MOST_BYTES)):
                self._send(part)
                done = end
            if done == MOST_BYTES < status.st_size:
                self.cut.add(name)
            self._sent[path] = _Sent(*now, done, len(head[:done]), _digest(head[:done]))


def _is_head(head: bytes, sent: _Sent) -> bool:
    return len(head) >= sent.head_bytes and _digest(head[: sent.head_bytes]) == sent.head


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def file_parts(path: Path, run: Path) -> Iterator[FilePart]:
    """Parts of a whole file below a run folder.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        for part, _ in _parts(file, path.relative_to(run).as_posix(), 0, path.stat().st_size):
            yield part


def _parts(file: BinaryIO, name: str, begin: int, end: int) -> Iterator[tuple[FilePart, int]]:
    """Parts of a file from one place (bytes) to another, each with the place of its end; one if the file is empty."""
    file.seek(begin)
    done = begin
    while (data := file.read(min(_PART_BYTES, end - done))) or done == 0:
        part = FilePart(name, done, base64.b64encode(data).decode())
        done += len(data)
        yield part, done
        if not data:
            return


def write_part(run: Path, part: FilePart) -> None:
    """Write a part into a run folder. A file is replaced as a whole by its first part.

    Raises:
        ValueError: The path leads out of the folders that hold files of other machines, or the part has no place.
        OSError: The disk is full, or permission is missing.
    """
    place = PurePosixPath(part.path)
    if len(place.parts) < 2 or ".." in place.parts or place.parts[0] not in _FOLDERS:
        raise ValueError(f"{part.path!r} is no file of another machine")
    if not 0 <= part.offset <= MOST_BYTES:
        raise ValueError(f"{part.path!r} has no place {part.offset}")
    data = base64.b64decode(part.data)
    make_folder(run)
    with folder_below(run, place.parts[:-1]) as folder:
        if part.offset == 0:
            atomic_write(folder / place.name, data, mode=0o600)
            return
        number = os.open(folder / place.name, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.pwrite(number, data, part.offset)
        finally:
            os.close(number)
