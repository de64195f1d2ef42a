"""Files of a run on a machine that shares no file system with the machine of the run.

::

    <state folder>/shipped/<run>/<node>/      `ecoshare.devices.state_folder` says where
        files/          copy of the shipped folder: jobs run here, and what they write stays
        shipped.json    digest of each file that was copied, to tell later what has changed where
        run/            run folder of this machine; its files are sent to the run, and it goes with the last of them

A run that is resumed finds its jobs' files again, and gets what has changed in the shipped folder since. If no job has
written any, nothing stays.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path, PurePosixPath

from ecoshare.cluster.agent_messages import FilePart
from ecoshare.cluster.file_parts import FileSender, write_part
from ecoshare.common.disk import atomic_write, folder_below
from ecoshare.common.documents import open_regular, read_own
from ecoshare.devices.state_folder import STATE_HINT, StateFolder
from ecoshare.errors import UnfitEnvironment
from ecoshare.lane.files import make_folder

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
