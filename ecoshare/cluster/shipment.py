"""Files of a run on a machine that shares no file system with the machine of the run.

::

    ~/.local/state/ecoshare/shipped/<run>/<node>/      below ECOSHARE_STATE, if that is set
        files/     copy of the shipped folder: jobs run here, and what they write stays
        run/       run folder of this machine; its files are sent to the run, and it goes with the last of them

A run that is resumed finds its jobs' files again. If no job has written any, nothing stays.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ecoshare.cluster.agent_messages import FilePart
from ecoshare.cluster.file_parts import FileSender
from ecoshare.devices.state_folder import StateFolder
from ecoshare.lane.files import make_folder
from ecoshare.record.run_folder import unwritable


class Shipment:
    """Folders of a run on this machine.

    Attributes:
        files: Copy of the shipped folder.
        run: Run folder of this machine.
        sender: Sends the files of the run folder.
    """

    def __init__(self, run: str, node: str, unpacked: Path, send: Callable[[FilePart], None]) -> None:
        """Copy the shipped folder, unless an earlier session of the run has done so.

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
        self.files, self.run = self._own / "files", self._own / "run"
        self._first = dict[str, tuple[int, int]]()
        try:
            shutil.rmtree(self.run, ignore_errors=True)
            make_folder(self.run / "jobs")
            if not self.files.is_dir():
                shutil.rmtree(copied := self._own / "copied", ignore_errors=True)
                shutil.copytree(unpacked, copied, symlinks=True)
                copied.replace(self.files)
                self._first = _contents(self.files)
        except (OSError, shutil.Error) as error:
            raise unwritable(self._own, error if isinstance(error, OSError) else OSError(str(error))) from error
        self.sender = FileSender(self.run, send)

    def begin(self, job: str) -> None:
        """Prepare the folder of a job whose attempt begins: what the last one has written was sent."""
        shutil.rmtree(self.run / "jobs" / job, ignore_errors=True)
        self.sender.forget(f"jobs/{job}")

    def end(self, node: str) -> tuple[str, ...]:
        """Send what is left, and remove all that is not needed. Return notes for the user."""
        self.sender.finish("jobs")
        self.sender.finish(f"nodes/{node}")
        notes = []
        if self.sender.cut:
            names = ", ".join(sorted(self.sender.cut))
            notes.append(f"{names}: only the beginning was fetched; the whole is on {node}, in {self.run}")
        else:
            shutil.rmtree(self.run, ignore_errors=True)
        if _contents(self.files) != self._first:
            notes.append(f"files that jobs have written on {node} are there in {self.files}")
        elif not self.sender.cut:
            shutil.rmtree(self._own, ignore_errors=True)
        return tuple(notes)


def _contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time (ns) of each file of a folder, by its path there, without bytecode."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.parent.name != "__pycache__":
            status = path.stat()
            found[str(path.relative_to(folder))] = (status.st_size, status.st_mtime_ns)
    return found
