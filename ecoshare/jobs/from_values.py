"""Jobs that a caller gives as values: the path of a job file, paths of scripts, or the content of a job file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import yaml

from ecoshare.errors import UsageError
from ecoshare.jobs.from_scripts import named_jobs
from ecoshare.jobs.load import LoadedJobs, parse

AnyPath = str | os.PathLike[str]
Jobs = AnyPath | Sequence[AnyPath] | Mapping[str, Any]
"""Path of a job file or of a script, paths of scripts, or the content of a job file as a mapping."""

_SHOWN: Final = "<jobs>"
"""Name of a mapping in messages. Lines and columns are those of its YAML text, which the run folder holds."""

_PATH: Final = Path("jobs.yaml")


def given_jobs(jobs: Jobs, args: Sequence[str] = ()) -> LoadedJobs:
    """Jobs that are given as a value.

    Relative paths in a mapping start at the working folder.

    Args:
        jobs: The value.
        args: Arguments of the scripts.

    Raises:
        UsageError: The value names no jobs, a file is missing, or arguments are given without a script.
        InvalidJobFile: The job file or the mapping holds mistakes, see `ecoshare.jobs.load.parse`.
    """
    if isinstance(args, str):
        raise UsageError(f"args={args!r}: expected a list of arguments", "such as args=['--epochs', '3']")
    if isinstance(jobs, Mapping):
        if args:
            raise UsageError("the jobs of a mapping have their arguments under `args`")
        return _from_mapping(jobs)
    paths = [jobs] if isinstance(jobs, str | os.PathLike) else list(jobs)
    if not paths:
        raise UsageError("no jobs were given", "give a job file, scripts, or the content of a job file")
    return named_jobs([Path(path) for path in paths], args)


def _from_mapping(jobs: Mapping[str, Any]) -> LoadedJobs:
    try:
        text = yaml.safe_dump(_plain(jobs), sort_keys=False, allow_unicode=True)
    except yaml.YAMLError as error:
        raise UsageError(f"{_SHOWN}: a job file cannot hold this value: {error}") from error
    return replace(parse(text.encode(), _PATH, _SHOWN, Path.cwd()), made=True)


def _plain(value: Any) -> Any:
    """The value in types that YAML has; values of other types stay, and are refused when they are written."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value
