"""The class of a job: what its profile is kept for.

Two jobs are of one class when all that decides what an iteration costs is equal: the script with the local modules that
it imports, all arguments, the model of the device, and torch. Where the job file names the class (`class:`), its writer
vouches for scripts and arguments, and only the device and torch are added to that name.

Paths do not count, so that a project that was moved keeps its profiles; the origin has them to find the nearest class.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ecoshare.jobs.schema import JobConfig
from ecoshare.lane.local_sources import local_modules, local_sources
from ecoshare.profiling.profile import ProfileOrigin

MAX_STEM = 100
"""Characters of a class's name before its digits: as many as a name in the job file may have."""


@dataclass(frozen=True, slots=True)
class JobClass:
    """A class of jobs.

    Attributes:
        name: Readable, and the name of a file: the script's, module's or given name, and 12 hexadecimal digits over all
            of the origin that counts.
        origin: What the class is.
    """

    name: str
    origin: ProfileOrigin


class JobClasses:
    """Finds the classes of the jobs of one plan.

    Each script is read once, whatever the number of jobs, and all of them see it as it was at that moment. Nothing is
    kept from plan to plan: a script may have changed by then.
    """

    def __init__(self, device_model: str) -> None:
        self._device_model = device_model
        self._program = cache(_program)
        self._torch = cache(torch_version)

    def of(self, job: JobConfig) -> JobClass:
        """The class of a job as `load` gives it; what cannot be read is no error here, but counts by its path."""
        # A module is looked for in the working folder; a script's modules are in its own, wherever it runs.
        program = self._program(job.script, job.module, job.cwd if job.module is not None else None)
        changes = {
            "args": tuple(map(_text, job.args)),
            "device_model": _text(self._device_model),
            "torch": self._torch(job.python),
            "given": job.job_class,
        }
        # Not validated again, and the digests are shared: ten thousand jobs often have one script.
        origin = program.origin.model_copy(update=changes)
        where = [origin.device_model, origin.torch]
        if origin.given is not None:
            return JobClass(_name(origin.given, "given", *where), origin)
        return JobClass(_name(program.stem, program.digest, origin.args, *where), origin)


def torch_version(python: str | None) -> str:
    """The version of torch that a job's interpreter has, such as `2.13.0+cpu`, read from the package's metadata.

    Importing torch would take seconds, and so would asking another interpreter. Of that one the folder of packages is
    looked up where virtual environments and conda have it. Where it is elsewhere the version is unknown, and the
    interpreter's path stands for it: its jobs share no class with those of any other, and torch may be replaced there
    unseen.

    Args:
        python: Path of another interpreter; None for this one.
    """
    if python is None or python == sys.executable:
        folders, otherwise = sys.path, "none"
    else:
        prefix = Path(python).parent.parent  # not resolved: in a virtual environment it is a link to another's
        folders = [str(folder) for folder in sorted(prefix.glob("lib/python3*/site-packages"))]
        otherwise = _text(f"unknown, of {python}")
    for found in metadata.distributions(name="torch", path=folders):
        if version := found.metadata["Version"]:
            return _text(version)
    return otherwise


@dataclass(frozen=True, slots=True)
class _Program:
    """What jobs of one script or module have in common.

    Attributes:
        stem: How their classes' names begin.
        digest: Over all sources.
        origin: Without what each job adds to it.
    """

    stem: str
    digest: str
    origin: ProfileOrigin


def _program(script: Path | None, module: str | None, cwd: Path | None) -> _Program:
    if script is not None:
        sources = _digests(local_sources(script), script.parent)
        stem, name = script.stem, None
    else:
        assert module is not None and cwd is not None, "a job has a script or a module"
        sources = _digests(_sources_of_module(module, cwd), cwd)
        stem = name = module  # counts, since of an installed module there is nothing else
    origin = ProfileOrigin(script=_text(str(script or module)), sources=sources, args=(), device_model="", torch="")
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", stem)[:MAX_STEM].lstrip(".-")
    return _Program(stem or "job", _digest_of(name, sources), origin)


def _sources_of_module(module: str, cwd: Path) -> Iterable[Path]:
    """Of a module in the working folder its file and imports, or its whole package; of an installed one nothing."""
    found = local_modules(cwd).get(module.partition(".")[0])
    if found is None:
        return []
    source = Path(found)
    return source.parent.rglob("*.py") if source.name == "__init__.py" else local_sources(source)


def _digests(sources: Iterable[Path], folder: Path) -> dict[str, str]:
    return {_text(path.relative_to(folder).as_posix()): _digest(path) for path in sorted(sources)}


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return _text(f"unreadable: {path}")  # two such files are not the same one


def _name(stem: str, *counts: Any) -> str:
    return f"{stem}-{_digest_of(stem, *counts)[:12]}"


def _digest_of(*parts: Any) -> str:
    # As JSON, since no character is left that could separate them: arguments may hold any.
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _text(text: str) -> str:
    """Text that can be written as UTF-8: names of files may hold bytes that are not, as lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()
