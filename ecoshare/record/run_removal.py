"""Removes run folders: never one of a run in progress, and never what is not a run folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ecoshare.common import documents
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.record.past_runs import is_run_folder, past_runs
from ecoshare.record.reading import is_live
from ecoshare.record.run_folder import RunFolder, point


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
