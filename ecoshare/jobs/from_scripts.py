"""Make a job file from scripts that the user names on the command line."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from ecoshare.errors import UsageError
from ecoshare.jobs.load import LoadedJobs, load
from ecoshare.jobs.schema import JobConfig
from ecoshare.jobs.template import job_names

SCRIPT_SUFFIX: Final = ".py"
_LONGEST_STEM: Final = 60


def named_jobs(paths: Sequence[Path], args: Sequence[str]) -> LoadedJobs:
    """Jobs of the one named job file, or one job for each named script.

    Args:
        args: Arguments of the scripts.

    Raises:
        UsageError: A job file and a script are named, or several job files, or arguments with a job file, or a
            file is missing.
        InvalidJobFile: The job file holds mistakes, see `load`.
    """
    scripts, file = sorted_paths(paths)
    if scripts:
        return from_scripts(scripts, args, "`ecoshare run a.py b.py -- their arguments`")
    assert file is not None, "either scripts or a job file are named"
    if args:
        raise UsageError(f"{file} is a job file, and takes no arguments", "its jobs have theirs under `args:`")
    return load(file)


def sorted_paths(paths: Sequence[Path]) -> tuple[list[Path], Path | None]:
    """Scripts, or else the one job file, among paths that a user has named.

    Raises:
        UsageError: A job file and a script are named, or several job files.
    """
    scripts = [path for path in paths if path.suffix == SCRIPT_SUFFIX]
    files = [path for path in paths if path.suffix != SCRIPT_SUFFIX]
    if scripts and files:
        if files[0].is_dir():
            raise UsageError(f"{files[0]} is a folder", f"name the scripts in it, such as {files[0] / 'train.py'}")
        if not files[0].is_file():
            raise UsageError(
                f"{files[0]} is neither a script ({SCRIPT_SUFFIX}) nor a job file",
                f"arguments of scripts stand after `--`: `ecoshare run {scripts[0]} -- {files[0]}`",
            )
        raise UsageError(
            f"{files[0]} is a job file and {scripts[0]} a script: give one job file, or scripts",
            f"a script can be a job of the file: `script: {scripts[0]}`",
        )
    if len(files) > 1:
        raise UsageError(f"{files[0]} and {files[1]}: give one job file", "a run has one; it may have many jobs")
    return scripts, files[0] if files else None


def from_scripts(scripts: Sequence[Path], args: Sequence[str], hint: str) -> LoadedJobs:
    """One job for each script, named after its file, with these arguments and the current working folder.

    Args:
        scripts: Paths of the scripts, at least one.
        hint: Remedy to show if a script is missing.

    Raises:
        UsageError: A script is missing, is a folder, or is not readable.
    """
    check_scripts(scripts, hint)
    jobs = script_jobs(scripts, args)
    text = job_file_text(jobs)
    names = [job["name"] for job in jobs]
    path = scripts[0] if len(scripts) == 1 else Path("+".join(dict.fromkeys(names))[:_LONGEST_STEM] + SCRIPT_SUFFIX)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return LoadedJobs(path, digest, text, tuple(map(JobConfig.model_validate, jobs)), made=True)


def check_scripts(scripts: Sequence[Path], hint: str) -> None:
    """Check that scripts can be read.

    Args:
        scripts: Paths of the scripts.
        hint: Remedy to show if a script is missing.

    Raises:
        UsageError: A script is missing, is a folder, or is not readable.
    """
    for script in scripts:
        if script.is_dir():
            raise UsageError(f"{script} is a folder", hint)
        if not script.is_file():
            raise UsageError(f"{script}: no such script", hint)
        if not os.access(script, os.R_OK):
            raise UsageError(f"{script} is not readable for you", hint)


def script_jobs(scripts: Sequence[Path], args: Sequence[str]) -> list[dict[str, Any]]:
    """Jobs of a job file, one for each script, named after its file, with these arguments and the working folder."""
    return [
        {"name": name, "script": os.path.normpath(script.absolute()), "args": list(args), "cwd": str(Path.cwd())}
        for name, script in zip(job_names(scripts), scripts, strict=True)
    ]


def job_file_text(jobs: Sequence[dict[str, Any]]) -> str:
    """Text of the job file with these jobs."""
    return yaml.safe_dump({"version": 1, "jobs": jobs}, sort_keys=False)
