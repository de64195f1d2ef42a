"""Lists the runs of a folder from their names and summaries: quick enough for a thousand runs.

A run folder has a `plan.json`. A folder that has only the name and the log of a run is one, too: a damaged one.
"""

from __future__ import annotations

import calendar
import contextlib
import fcntl
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ecoshare.base import documents
from ecoshare.base.printable import utc_text
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.record.run_data import is_live
from ecoshare.record.run_documents import read_environment, read_plan
from ecoshare.record.run_folder import RunFolder, point

RUNNING, INTERRUPTED, DAMAGED = "running", "interrupted", "damaged"
_OVER = ("completed", "failed", INTERRUPTED)
_STAMP = re.compile(r"(\d{8}-\d{6})-")


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run, as far as a list shows it.

    Attributes:
        path: The run folder.
        opened_unix_s: Time (s since 1970, UTC) at which the run was opened; None if it is not known.
        jobs: Number of jobs, trials included; None if it is not known.
        energy_j: Joules of all devices; None if they are not known. They stand in the summary, which a run writes at
            its end.
        source: Source of the joules, `measured` or `modelled`; empty if they are not known.
        state: `completed`, `failed`, `interrupted`, `running`, or `damaged` if the folder cannot be read.
        fault: Reason why the folder cannot be read; empty if it can be read.
    """

    path: Path
    opened_unix_s: float | None
    state: str
    jobs: int | None = None
    energy_j: float | None = None
    source: str = ""
    fault: str = ""

    @property
    def name(self) -> str:
        """Name of the run folder."""
        return self.path.name

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        opened = None if self.opened_unix_s is None else utc_text(self.opened_unix_s)
        return {
            "run": str(self.path),
            "name": self.name,
            "opened_utc": opened,
            "state": self.state,
            "jobs": self.jobs,
            "energy": None if self.energy_j is None else {"value_j": self.energy_j, "source": self.source},
            "fault": self.fault or None,
        }


def past_runs(runs: Path) -> list[PastRun]:
    """All runs in a folder, the newest first. Symbolic links are left out; a folder that does not exist has no runs.

    Raises:
        UsageError: The folder cannot be read, or is a file.
    """
    try:
        with os.scandir(runs) as entries:
            paths = [runs / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"cannot read the folder {runs}: {error.strerror or error}") from error
    found = [past_run(path) for path in paths if is_run_folder(path)]
    # Runs of one second have a number at the end: a longer name is the later one.
    return sorted(found, key=lambda each: (each.opened_unix_s or 0.0, len(each.name), each.name), reverse=True)


def is_run_folder(path: Path) -> bool:
    """Whether a folder holds a run, which may be damaged. A symbolic link is no run folder."""
    folder = RunFolder(path)
    try:
        if path.is_symlink() or not path.is_dir():
            return False
        return folder.plan.is_file() or (_STAMP.match(path.name) is not None and folder.events.is_file())
    except OSError:  # the folder of another user
        return _STAMP.match(path.name) is not None


def past_run(path: Path) -> PastRun:
    """The run in a run folder."""
    folder = RunFolder(path)
    opened_s = _opened(folder)
    try:
        live = is_live(folder)  # asked first: a run that ends meanwhile must not look cut off
        if not live and folder.summary.is_file():
            return _over(path, opened_s, _summary(folder))
        jobs = len(read_plan(folder.plan).jobs)
    except UsageError as error:
        return PastRun(path, opened_s, DAMAGED, fault=str(error))
    except OSError as error:
        return PastRun(path, opened_s, DAMAGED, fault=f"{path}: {error.strerror or error}")
    return PastRun(path, opened_s, RUNNING if live else INTERRUPTED, jobs)


def _over(path: Path, opened_s: float | None, summary: dict[str, Any]) -> PastRun:
    energy = summary["energy"]
    return PastRun(
        path,
        opened_s,
        summary["state"],
        len(summary["jobs"]),
        None if energy is None else float(energy["value_j"]),
        "" if energy is None else energy["source"],
    )


def _summary(folder: RunFolder) -> dict[str, Any]:
    """The summary of a run that is over; only fields of the list are checked.

    Raises:
        UsageError: The file is no summary.
        OSError: The file or the plan cannot be read.
    """
    folder.plan.stat()
    with documents.open_regular(folder.summary) as file:
        text = file.read()
    try:
        # Any number is accepted, since the check of each number would take most of the time.
        summary = documents.parse(text, any_number=True)
    except ValueError as error:
        raise UsageError(f"{folder.summary}: {error}") from error
    checks: dict[str, Callable[[Any], bool]] = {
        "state": lambda value: value in _OVER,
        "jobs": lambda value: isinstance(value, list),
        "energy": _is_energy,
    }
    if not isinstance(summary, dict):
        raise UsageError(f"{folder.summary}: it holds no object")
    for name, holds in checks.items():
        if name not in summary or not holds(summary[name]):
            raise UsageError(f"{folder.summary}: `{name}` is missing or wrong")
    return summary


def _is_energy(value: Any) -> bool:
    if value is None:
        return True
    if not isinstance(value, dict) or not isinstance(value.get("source"), str):
        return False
    number = value.get("value_j")
    return isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)


def _opened(folder: RunFolder) -> float | None:
    """Time (s since 1970) at which a run was opened: from its name, or from its environment if it was renamed."""
    if found := _STAMP.match(folder.path.name):
        try:
            return float(calendar.timegm(time.strptime(found[1], "%Y%m%d-%H%M%S")))
        except ValueError:  # digits that are no time
            pass
    try:
        return float(read_environment(folder.environment)["opened_unix_s"])
    except UsageError:
        return None


def check_removable(path: Path) -> None:
    """Check that a run folder may be removed.

    Raises:
        UsageError: The path is a symbolic link, is not a run folder, or its run is in progress.
    """
    if path.is_symlink():
        raise UsageError(f"{path} is a link", f"name the run folder that it leads to: {path.readlink()}")
    if not is_run_folder(path) or path.name in ("", ".."):
        raise UsageError(f"{path} is not a run folder", "`ecoshare runs` lists them")
    if is_live(RunFolder(path)):
        raise _in_progress(path)


def remove(path: Path) -> None:
    """Remove a run folder. A link `latest` that led to it leads to the newest run that is left, or goes, too.

    The plan goes last: a removal that is cut off leaves a run folder, which can be removed again.

    Raises:
        UsageError: See `check_removable`.
        UnfitEnvironment: Permission is missing.
    """
    check_removable(path)
    folder = RunFolder(path)
    with _no_session(folder):
        try:
            opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                last = [folder.events.name, folder.plan.name]
                with os.scandir(opened) as entries:
                    names = [entry.name for entry in entries]
                for name in sorted(names, key=lambda each: last.index(each) if each in last else -1):
                    _remove_entry(opened, name)
            finally:
                os.close(opened)
            path.rmdir()
            _mend_latest(path)
        except OSError as error:
            raise UnfitEnvironment(f"cannot remove {path}: {error.strerror or error}") from error


def _remove_entry(folder: int, name: str) -> None:
    """Remove an entry of an open folder. A link that takes the folder's place meanwhile is not followed."""
    try:
        os.unlink(name, dir_fd=folder)
    except IsADirectoryError:
        shutil.rmtree(name, dir_fd=folder)


@contextlib.contextmanager
def _no_session(folder: RunFolder) -> Iterator[None]:
    """Context manager: no process resumes the run meanwhile, since its log is locked.

    Raises:
        UsageError: A process has just resumed it.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a damaged folder, which cannot be resumed
            log = stack.enter_context(documents.open_regular(folder.events))
            try:
                fcntl.flock(log, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _in_progress(folder.path) from None
        yield


def _mend_latest(removed: Path) -> None:
    latest = removed.with_name("latest")
    if not latest.is_symlink() or latest.readlink() != Path(removed.name):
        return
    left = past_runs(removed.parent)
    if left:
        point(latest, left[0].name)
    else:
        latest.unlink()


def _in_progress(path: Path) -> UsageError:
    return UsageError(f"{path} is still going on", "stop it first, with Ctrl-C where it runs")
