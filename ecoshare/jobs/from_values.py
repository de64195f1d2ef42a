"""Jobs that a caller gives as values: the path of a job file, paths of scripts, or the content of a job file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml

from ecoshare.errors import InvalidJobFile, Mistake, UsageError
from ecoshare.jobs.from_scripts import check_scripts, job_file_text, named_jobs, script_jobs, sorted_paths
from ecoshare.jobs.load import LoadedJobs, parse
from ecoshare.jobs.source import decode, read_bytes

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


@dataclass(frozen=True, slots=True)
class JobText:
    """Text of a job file that has not been checked.

    Attributes:
        text: The text.
        shown: Name of the file in messages.
        folder: Folder that relative paths in the file start at.
        of_scripts: Whether the file was made from scripts.
        made: Whether the file was made from scripts or from a mapping.
    """

    text: str = field(repr=False)
    shown: str
    folder: Path
    of_scripts: bool = False
    made: bool = False


def job_text(jobs: Jobs, args: Sequence[str] = (), options: Mapping[str, Any] = MappingProxyType({})) -> JobText:
    """Job file of jobs that are given as a value, for a program that will check it.

    Args:
        jobs: The value.
        args: Arguments of the scripts.
        options: Keys of a job that each script gets.

    Raises:
        UsageError: A file is missing, or arguments or options are given without a script.
        InvalidJobFile: The job file is no text.
    """
    if isinstance(jobs, Mapping):
        if args or options:
            raise UsageError("the jobs of a mapping have their arguments and options as keys")
        return JobText(_mapping_text(jobs), _SHOWN, Path.cwd(), made=True)
    scripts, file = sorted_paths([Path(each) for each in ([jobs] if isinstance(jobs, str | os.PathLike) else jobs)])
    if file is None:
        if not scripts:
            raise UsageError("no jobs were given", "give a job file, or scripts")
        check_scripts(scripts, "arguments of scripts stand after `--`")
        if "name" in options and len(scripts) > 1:
            raise UsageError("--name names one job, and there are several scripts")
        made = [{**job, **options} for job in script_jobs(scripts, args)]
        return JobText(job_file_text(made), str(scripts[0]), Path.cwd(), of_scripts=True, made=True)
    if args:
        raise UsageError(f"{file} is a job file, and takes no arguments", "its jobs have theirs under `args:`")
    if options:
        raise UsageError(f"{file} is a job file, and takes no --{min(options)}", "its jobs have such keys of their own")
    source = decode(read_bytes(file))
    if isinstance(source, Mistake):
        raise InvalidJobFile(str(file), [source])
    return JobText(source.text, str(file), file.absolute().parent)


def _from_mapping(jobs: Mapping[str, Any]) -> LoadedJobs:
    return replace(parse(_mapping_text(jobs).encode(), _PATH, _SHOWN, Path.cwd()), made=True)


def _mapping_text(jobs: Mapping[str, Any]) -> str:
    try:
        return yaml.safe_dump(_plain(jobs), sort_keys=False, allow_unicode=True)
    except yaml.YAMLError as error:
        raise UsageError(f"{_SHOWN}: a job file cannot hold this value: {error}") from error


def _plain(value: Any) -> Any:
    """The value in types that YAML has; values of other types stay, and are refused when they are written."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value
