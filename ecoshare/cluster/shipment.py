"""Files of a run on a machine that shares no file system with the machine of the run.

::

    <state folder>/shipped/<run>/<node>/      `ecoshare.devices.control.state_folder` says where
        files/          copy of the shipped folder: jobs run here, and what they write stays
        shipped.json    digest of each file that was copied, to tell later what has changed where
        run/            run folder of this machine; its files are sent to the run, and it goes with the last of them

A run that is resumed finds its jobs' files again, and gets what has changed in the shipped folder since. If no job has
written any, nothing stays.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ecoshare.base.attempt import GangPart
from ecoshare.base.disk import atomic_write, folder_below
from ecoshare.base.documents import open_own, open_regular, read_own
from ecoshare.base.service import ARRIVALS
from ecoshare.cluster.agent_calls import FilePart
from ecoshare.cluster.shipped_jobs import placed
from ecoshare.core.commands import StartJob
from ecoshare.devices.control.state_folder import STATE_HINT, StateFolder
from ecoshare.errors import UnfitEnvironment
from ecoshare.lane.files import keep_outputs, make_folder
from ecoshare.lane.supervisor.gang import folder_of, keep_outputs_beyond
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.planning.node_job import NodeJob

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

    ::

        machine of a job                          machine of the run
        run folder ── FileSender ── FilePart ──► write_part ── run folder

    A file that only grows is sent once, part by part. One that is replaced or changed is sent again. Files of a job are
    sent some times a second, and all that is left of them before the run hears of an event of that job.

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


_MOST_LIST_BYTES = 64 << 20
"""Most bytes of the list of shipped files."""


class Shipment:
    """Folders of a run on this machine.

    Attributes:
        files: Copy of the shipped folder.
        run: Run folder of this machine.
        sender: Sends the files of the run folder.
    """

    def __init__(self, run: str, node: str, unpacked: Path, send: Callable[[FilePart], None]) -> None:
        """Copy what is new in the shipped folder since an earlier session of the run, or all of it.

        Args:
            run: Path of the run folder on the machine of the run, which only names the run here.
            node: Name of the node in the run.
            unpacked: The shipped folder, which other work may use, too.
            send: Sends a part of a file to the run.

        Raises:
            UnfitEnvironment: There is no room, or no permission.
        """
        digest = hashlib.sha256(os.fsencode(run)).hexdigest()[:8]
        self._own = StateFolder.of_this_user().journals / "shipped" / f"{Path(run).name}-{digest}" / node
        self.files, self.run, self._list = self._own / "files", self._own / "run", self._own / "shipped.json"
        self._node = node
        try:
            shutil.rmtree(self.run, ignore_errors=True)
            make_folder(self.run / "jobs")
            self._shipped = self._copy(unpacked)
        except (OSError, shutil.Error, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise UnfitEnvironment(f"cannot write {self._own}: {reason}", STATE_HINT) from error
        self.sender = FileSender(self.run, send)

    def _copy(self, unpacked: Path) -> dict[str, str]:
        """Copy files that are not as they were shipped last. Return the digest of each file, by its path."""
        before = json.loads(read_own(self._list, _MOST_LIST_BYTES)) if self._list.exists() else {}
        with folder_below(self._own, (self.files.name,)):
            pass
        now = _digests(unpacked)
        for path in (path for path, digest in now.items() if before.get(path) != digest):
            place = PurePosixPath(path)  # jobs may have made links there
            with folder_below(self._own, (self.files.name, *place.parts[:-1])) as folder:
                beside = folder / f".{os.urandom(8).hex()}.new"
                shutil.copy(unpacked / place, beside)
                beside.replace(folder / place.name)
        atomic_write(self._list, json.dumps(now))
        return now

    def begin(self, job: str) -> None:
        """Prepare the folder of a job whose attempt begins: what the last one has written was sent."""
        shutil.rmtree(self.run / "jobs" / job, ignore_errors=True)
        self.sender.forget(job)

    def receive(self, part: FilePart) -> None:
        """Write a file of the run, which does not go back.

        Raises:
            ValueError: It is none of a job.
            OSError: The disk is full.
        """
        self.sender.ignore(part.path)
        write_part(self.run, part)

    def keep_only(self, jobs: Collection[str]) -> None:
        """Forget the files of all other jobs, which have ended. Those that are too long to be sent stay."""
        for folder in (self.run / "jobs").iterdir():
            if folder.name not in jobs and not any(name.startswith(f"jobs/{folder.name}/") for name in self.sender.cut):
                self.begin(folder.name)

    def end(self) -> tuple[str, ...]:
        """Send what is left, and remove all that is not needed. Return notes for the user."""
        self.sender.finish("jobs")
        self.sender.finish(f"nodes/{self._node}")
        notes = []
        if self.sender.cut:
            names = ", ".join(sorted(self.sender.cut))
            notes.append(f"{names}: only the beginning was fetched; the whole is on {self._node}, in {self.run}")
        else:
            shutil.rmtree(self.run, ignore_errors=True)
        if _digests(self.files) != self._shipped:
            notes.append(f"files that jobs have written on {self._node} are there in {self.files}")
        elif not self.sender.cut:
            shutil.rmtree(self._own, ignore_errors=True)
        return tuple(notes)


def _digests(folder: Path) -> dict[str, str]:
    """Digest of each file of a folder, by its path there, without bytecode."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.parent.name != "__pycache__":
            with open_regular(path) as file:
                found[path.relative_to(folder).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """Files that travel between a run and one node.

    Attributes:
        node: Name of the node.
        run: The run folder.
        shipped: The shipped folder, without links.
        copy: Path of its copy on the node.
        notes: Notes for the user; new ones are added.
    """

    node: str
    run: RunFolder
    shipped: Path
    copy: str
    notes: list[str]

    def placed(self, job: NodeJob) -> NodeJob:
        """A job with its paths on the node; see `shipped_jobs.placed`."""
        return placed(job, self.shipped, self.copy)

    def begin(self, command: StartJob, part: GangPart | None) -> Iterator[FilePart]:
        """Files that an attempt needs on the node. The outputs of the attempt before keep their content.

        Args:
            command: Command that starts the attempt.
            part: Ranks of a gang that run on the node; None for all of the job.
        """
        folder, first = self.run.job(command.job), part.first_rank if part is not None else 0
        if first == 0:
            keep_outputs_beyond(folder, part.world_size if part is not None else len(command.lanes), command.attempt)
        for rank in range(first, first + len(command.lanes)):
            keep_outputs(folder_of(folder, rank) if rank else folder, command.attempt)
        if (arrivals := folder / ARRIVALS).exists():
            yield from file_parts(arrivals, self.run.path)

    def write(self, part: FilePart) -> None:
        """Write a part of a file. A file that cannot be written is named in a note."""
        try:
            write_part(self.run.path, part)
        except (OSError, ValueError) as error:
            note = f"files of the node {self.node} cannot be written: {error}"
            if note not in self.notes:
                self.notes.append(note)
