"""Jobs whose scripts and data are shipped to other machines: which can be, and where they are there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ecoshare.errors import UsageError
from ecoshare.jobs.load import LoadedJobs, mistake_of
from ecoshare.runtime.planning.node_job import NodeJob
from ecoshare.runtime.planning.planned_job import PlannedJob

_HINT = "ship a folder above it"


def shipped_folder(given: Path) -> Path:
    """Folder that `--ship` names, without links.

    Raises:
        UsageError: There is no such folder.
    """
    folder = Path(os.path.realpath(given))
    if not folder.is_dir():
        raise UsageError(f"--ship {given}: no such folder")
    return folder


def check_shipped(jobs: Iterable[PlannedJob], loaded: LoadedJobs, folder: Path) -> None:
    """Check that jobs have their scripts and working folders in the shipped folder.

    Args:
        jobs: The jobs.
        loaded: The file that they come from.
        folder: The shipped folder, without links.

    Raises:
        InvalidJobFile: One has not.
    """
    for job in jobs:
        if (outside := _outside(job, folder)) is not None:
            key, words = outside
            raise mistake_of(loaded, job.spec.name, key, words, _HINT)


def check_shipped_again(jobs: Iterable[PlannedJob], folder: Path) -> None:
    """Check the same of a run that goes on, whose jobs were shipped with another folder, maybe.

    Raises:
        UsageError: A job has its script or its working folder elsewhere.
    """
    for job in jobs:
        if (outside := _outside(job, folder)) is not None:
            raise UsageError(f"{job.spec.name}: {outside[1]}", _HINT)


def _outside(job: PlannedJob, folder: Path) -> tuple[str, str] | None:
    """Key of a path of the job that is not in the shipped folder, and words for the user; None if all are."""
    for key, path in (("script", job.source.script), ("cwd", job.source.cwd)):
        if path is not None and _inside(path, folder) is None:
            return key, f"{path} is not in the folder of --ship, {folder}"
    return None


def _inside(path: Path, folder: Path) -> Path | None:
    """The path from the shipped folder on, whether its links are followed or not; None if it leads elsewhere."""
    for each in (Path(os.path.normpath(path)), Path(os.path.realpath(path))):
        if each.is_relative_to(folder):
            return each.relative_to(folder)
    return None


def placed(job: NodeJob, folder: Path, copy: str) -> NodeJob:
    """A job as a machine starts it that has a copy of the shipped folder.

    Paths in the folder become paths in the copy: script and working folder, each argument that is such a path as a
    whole or after its first `=`, and variables that are such paths or lists of them. So does PYTHONPATH of the run.

    Args:
        job: The job with the paths of the machine of the run.
        folder: The shipped folder, without links.
        copy: Path of its copy.
    """

    def there(text: str) -> str:
        inside = _inside(Path(text), folder) if Path(text).is_absolute() else None
        return text if inside is None else str(Path(copy) / inside)

    def argument(text: str) -> str:
        name, equals, value = text.partition("=")
        return there(text) if text.startswith("/") else f"{name}{equals}{there(value)}"

    def listed(text: str) -> str:
        return os.pathsep.join(map(there, text.split(os.pathsep)))

    inherited = {name: value if value is None else listed(value) for name, value in job.inherited.items()}
    path = os.environ.get("PYTHONPATH", "")
    if listed(path) != path:
        inherited.setdefault("PYTHONPATH", listed(path))
    return replace(
        job,
        script=there(job.script) if job.script is not None else None,
        cwd=there(job.cwd),
        args=tuple(map(argument, job.args)),
        resume_args=tuple(map(argument, job.resume_args)),
        env={name: listed(value) for name, value in job.env.items()},
        inherited=inherited,
    )
