"""The folder of a run; only this module knows the names of its documents.

The files inside a job's folder belong to the processes that write them, and their names to `lane/`: `files.py`,
`exit_records.py`, `trace.py`, `reports.py`.

::

    ecoshare-runs/20261121-053012-jobs/     mode 0700
        jobs.yaml                  as given, with values of env: masked
        plan.json                  the decisions from before it began
        submitted.jsonl            jobs that were submitted to it while it went on; only in a run of a queue
        environment.json           machine and versions
        events.jsonl               the single source of truth: every event and command, in order
        events-<number>.jsonl      earlier segments of it, in a queue or if machines came
        samples.jsonl              joules, power and clocks over time, and the progress of each job
        summary.json               the result, for other programs
        report.html, trace.pftrace the result, to look at
        profiles/                  profiles of the jobs' classes, as the run used or made them
        supervisor.log             stderr of the warm server
        jobs/<name>/               stdout.log, stderr.log, exit-<attempt>.json, trace.bin
        nodes/<name>/              samples.jsonl and supervisor.log of a node on another machine
    ecoshare-runs/latest                    -> the newest run
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ecoshare.base.disk import RUNS, atomic_write
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.lane.files import make_folder

SUBMITTED = "submitted.jsonl"

_ELSEWHERE = "choose another place with --runs"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths of one run."""

    path: Path

    @classmethod
    def create(cls, runs: Path, name: str) -> RunFolder:
        """Make a new run folder in `runs`, named after the present time and `name`.

        Raises:
            UnfitEnvironment: `runs` cannot be written, is another user's link, or is full of runs of this second.
        """
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", name)  # can be typed without quotes
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        try:
            runs.mkdir(parents=True, exist_ok=True)
            if (owner := runs.lstat().st_uid) not in (os.geteuid(), 0) and runs.is_symlink():
                raise UnfitEnvironment(f"{runs} is a link of user {owner}, which can lead anywhere", _ELSEWHERE)
            for attempt in range(1000):
                folder = cls(runs / (f"{stamp}-{name}" + (f"-{attempt + 1}" if attempt else "")))
                try:
                    folder.path.mkdir(mode=0o700)
                except FileExistsError:
                    continue
                break
            else:
                raise UnfitEnvironment(f"{runs} has a thousand runs of this second already")
            folder.jobs.mkdir(mode=0o700)
            point(runs / "latest", folder.path.name)
        except OSError as error:
            raise unwritable(runs, error) from error
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open the run folder at `path`.

        Raises:
            UsageError: `path` is not a run folder.
        """
        folder = cls(Path(os.path.realpath(path)))  # `Path.resolve` fails at a link to itself
        if not folder.plan.is_file():
            raise UsageError(
                f"{path} is not a run folder", f"a run folder has a plan.json; `{RUNS}/latest` is the newest"
            )
        return folder

    def check_own(self) -> None:
        """Check that a run may be resumed here: it executes scripts that the folder names, and writes there.

        Raises:
            UsageError: Another user owns the folder or an entry, or may write to it; or an entry is a symbolic link.
        """
        documents = (
            self.job_file,
            self.plan,
            self.submitted,
            self.environment,
            self.events,
            self.samples,
            self.supervisor_log,
        )
        folders = (self.path, self.jobs, self.profiles, *self.jobs.glob("*"))
        others_enter = self.path.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH)
        for place in (*folders, *documents):
            try:
                status = place.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISLNK(status.st_mode):
                raise UsageError(f"{place} is a symbolic link", "a resumed run writes no file that a link leads to")
            if status.st_uid != os.geteuid():
                raise UsageError(
                    f"{place} belongs to user {status.st_uid}, and this process to user {os.geteuid()}",
                    "if you trust what it runs: copy the folder with `cp -r`, and resume the copy",
                )
            if others_enter and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise UsageError(f"other users may write to {place}", f"if you trust it: `chmod -R go-w {self.path}`")

    @property
    def jobs(self) -> Path:
        """Folder that holds one folder for each job."""
        return self.path / "jobs"

    def job(self, name: str) -> Path:
        """Folder of one job's logs and exit records."""
        return self.jobs / name

    def values(self, name: str) -> Path:
        """File with the values of a trial that chose them while it ran."""
        return self.job(name) / "values.json"

    @property
    def job_file(self) -> Path:
        """Masked copy of the job file."""
        return self.path / "jobs.yaml"

    @property
    def plan(self) -> Path:
        """File with the decisions from before the run began."""
        return self.path / "plan.json"

    @property
    def submitted(self) -> Path:
        """File with the jobs that were submitted while the run went on."""
        return self.plan.with_name(SUBMITTED)

    @property
    def environment(self) -> Path:
        """File with the machine and the versions."""
        return self.path / "environment.json"

    @property
    def events(self) -> Path:
        """Log of events and commands."""
        return self.path / "events.jsonl"

    @property
    def samples(self) -> Path:
        """File with the samples of the device's meter over time."""
        return self.path / "samples.jsonl"

    @property
    def profiles(self) -> Path:
        """Folder with the profiles of the jobs' classes, as the run used or made them."""
        return self.path / "profiles"

    @property
    def summary(self) -> Path:
        """File with the result, for other programs."""
        return self.path / "summary.json"

    @property
    def report(self) -> Path:
        """File with the result and charts, for a browser."""
        return self.path / "report.html"

    @property
    def trace(self) -> Path:
        """File with turns and iterations over time, for ui.perfetto.dev."""
        return self.path / "trace.pftrace"

    def _documents(self) -> tuple[Path, ...]:
        """Files from before the run began that describe it, as far as they exist."""
        return self.job_file, self.plan, self.environment

    def documents(self) -> dict[Path, bytes]:
        """Read the files from before the run began, by path; with the log, they define the run."""
        places = (*self._documents(), *self.profiles.rglob("*"))
        return {place: place.read_bytes() for place in places if place.is_file()}

    def make_again(self, documents: dict[Path, bytes]) -> None:
        """Write the documents that no longer exist, and the link `latest` if it is missing.

        Raises:
            UnfitEnvironment: The disk is full, or permission is missing.
        """
        for place, content in documents.items():
            if not place.exists():
                make_folder(place.parent)
                write_bytes(place, content)
        if not os.path.lexists(latest := self.path.with_name("latest")):
            point(latest, self.path.name)

    def keeps(self, path: Path) -> bool:
        """Whether `path` belongs to the record of the run, which cannot be made again."""
        own = (
            self.job_file,
            self.plan,
            self.submitted,
            self.environment,
            self.events,
            self.samples,
            self.supervisor_log,
        )
        whole = Path(os.path.realpath(path))
        return any(whole.is_relative_to(os.path.realpath(each)) for each in (*own, self.jobs, self.profiles))

    @property
    def on_end_log(self) -> Path:
        """File with the output of the command that ran at the end of the run."""
        return self.path / "on_end.log"

    @property
    def supervisor_log(self) -> Path:
        """File with stderr of the warm server; empty unless there was an error."""
        return self.path / "supervisor.log"

    def node(self, name: str, log: Path) -> NodeFolder:
        """Folder of the run as a node on another machine uses it.

        Args:
            name: Name of the node.
            log: File with stderr of its warm server, on that machine.
        """
        return NodeFolder(self.path, name, log)


@dataclass(frozen=True, slots=True)
class NodeFolder(RunFolder):
    """Paths of one run for a node on another machine, which has its own samples and its own server.

    Attributes:
        name: Name of the node.
        log: File with stderr of its warm server.
    """

    name: str
    log: Path

    @property
    def own(self) -> Path:
        return self.path / "nodes" / self.name

    @property
    def samples(self) -> Path:
        """File with the samples of the node's devices; the run has them, too."""
        return self.own / "samples.jsonl"

    @property
    def supervisor_log(self) -> Path:
        """File with stderr of the node's warm server, on its machine. The folder has it after the run."""
        return self.log

    def keep_log(self) -> None:
        """Keep what the servers of the lanes have said in the folder of the node, if they have said anything."""
        with contextlib.suppress(OSError):
            if self.log.stat().st_size:
                shutil.copy(self.log, self.own / self.log.name)


def write_json(path: Path, data: Any) -> None:
    """Write `data` as JSON with `write_bytes`: readers see all of it or nothing.

    Raises:
        UnfitEnvironment: The disk is full, or permission is missing.
    """
    write_text(path, json.dumps(data, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write `text` as `write_bytes` does, in UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` atomically, and synchronize it to disk.

    Raises:
        UnfitEnvironment: The disk is full, or permission is missing.
    """
    try:
        atomic_write(path, content, sync=True)
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> UnfitEnvironment:
    """Create the error for a path that cannot be written."""
    return UnfitEnvironment(f"cannot write {path}: {error.strerror or error}", _ELSEWHERE)


def point(link: Path, target: str) -> None:
    """Point the link `latest` to a run, unless a file or folder of the user has that name."""
    if link.exists() and not link.is_symlink():
        return
    # `atomic_write` replaces content. A symbolic link has none, so it is created under another name and renamed.
    beside = link.with_name(f".latest-{os.getpid()}")
    beside.unlink(missing_ok=True)
    beside.symlink_to(target)
    beside.replace(link)
