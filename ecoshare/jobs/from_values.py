"""Jobs that a caller gives as values: the path of a job file, paths of scripts, or the content of a job file."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, Final

import yaml

from ecoshare.base.disk import AnyPath
from ecoshare.errors import InvalidJobFile, Mistake, UsageError
from ecoshare.jobs.document import decode, read_bytes
from ecoshare.jobs.fields import MAX_NAME_LENGTH
from ecoshare.jobs.load import LoadedJobs, load, parse
from ecoshare.jobs.schema import JobConfig

_HEAD: Final = """\
# Jobs that share the device of this machine. To run them:  ecoshare run FILE
# A job is any script that runs as `python script.py`; it needs no change.
version: 1

# Options of all jobs. A key of a job replaces the default; `env` of a job is added to `env` here.
defaults:
  retries: 0                # how many times a failed job is started again

# Command to run at the end of the run, such as [notify-send, '{state}', '{run}']; each job can have one, too.
on_end: []

jobs:
"""

REFERENCE: Final = """\
# Every key that a job can have, with its default. Copy what you need, without the '# '.
#
#   - name: first             # unique: letters, digits, '.', '_' and '-'
#     script: train.py        # relative to this file; or  module: package.train
#     args: []                # such as [--epochs, 3]; passed on exactly as written
#     cwd: .                  # working folder; . is the folder of this file
#     env: {}                 # such as {OMP_NUM_THREADS: 2}; logs and reports do not show the values
#     python: null            # another interpreter, such as .venv/bin/python
#     class: null             # jobs of one class share a profile; null: the class follows from the script
#     arrival: 0 s            # time from the start of the run to its arrival: 250 ms, 2 min, 1.5 h
#     priority: 0             # jobs with a higher number go first
#     iterations: null        # how many it trains for, which helps to plan; null: learned from earlier runs
#     gpus: 1                 # number of devices that the job needs at once
#     most_gpus: null         # with --policy fluid: most devices that it can use, if it is preemptible
#     nodes: 1                # with launch: ranks: most machines that these devices may lie on
#     launch: null            # ranks: a process for each device, as torchrun starts them; torchrun: by torchrun itself
#     slowdown: null          # such as 1.5: the largest slowdown that the job accepts; docs/reports.md defines it
#     isolation: process      # fresh: an interpreter of its own, slower to start; lane: one process for many trials
#     retries: 0              # how many times a failed job is started again; see ECOSHARE_ATTEMPT
#     resume_args: []         # arguments that are added from the second attempt on, such as [--resume]
#     after: []               # names of jobs and sweeps that must complete before this job arrives
#     after_ok: []            # the same as after, by the name that Slurm gives it
#     after_any: []           # names of jobs and sweeps that must end, in whatever state
#     preemptible: false      # true: may be stopped for a more urgent job, if it saves its state on SIGTERM
#     timeout: null           # such as 10 min: longest time with the turn and without a step
#     startup_timeout: null   # such as 10 min: longest time from its start to its first step
#     on_end: []              # command to run at its end, without a shell: [notify-send, '{job} {state}', '{run}']
#     sweep: null             # such as {grid: {lr: [0.1, 0.01]}}: one trial for each value; see docs/job-file.md
#     service: null           # such as {p99: 50 ms}: it answers requests within this time; see docs/services.md
"""


def template(scripts: Sequence[PurePath], file: str = "jobs.yaml") -> str:
    """Text of a job file with one job for each script, and an explanation of all keys at its end.

    Args:
        scripts: Paths relative to the folder of the job file; at least one.
        file: Name of the job file.
    """
    jobs = (
        f"  - name: {_word(name)}\n"
        f"    script: {_word(script.as_posix())}\n"
        "    args: []                # its arguments\n"
        for name, script in zip(job_names(scripts), scripts, strict=True)
    )
    return _HEAD.replace("FILE", file) + "\n".join(jobs) + "\n" + REFERENCE


def job_names(scripts: Iterable[PurePath]) -> list[str]:
    """A unique job name for each script: the name of its file, with a number if that name is taken."""
    names: dict[str, None] = {}
    for script in scripts:
        room = MAX_NAME_LENGTH - len("-99999")
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", script.stem).lstrip(".-")[:room] or "script"
        name, number = stem, 1
        while name in names:
            number += 1
            name = f"{stem}-{number}"
        names[name] = None
    return list(names)


def _word(text: str) -> str:
    """Text as YAML, in quotes if YAML would otherwise read it as another type."""
    return yaml.safe_dump(text, allow_unicode=True, width=10_000).splitlines()[0]


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
