"""Class of a job: jobs of one class share a profile.

Two jobs belong to one class if everything that decides the cost of an iteration is equal: the script with the local
modules that it imports, all arguments, the device model, the number of devices, and the version of torch. If the job
file names the class (`class:`), the user vouches for scripts and arguments. Then only the devices and torch are added
to that name.

Paths do not count, so a project that was moved keeps its profiles. The origin holds the path of the script, to find the
nearest class.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ecoshare.base.job_spec import PARTIAL_CLASS
from ecoshare.jobs.fields import Launch
from ecoshare.jobs.schema import JobConfig
from ecoshare.knowledge.profile import ProfileOrigin
from ecoshare.lane.supervisor.warm_start import local_modules, local_sources

MAX_STEM = 100
"""Most characters of a class name before its digits: as many as a name in the job file may have."""


@dataclass(frozen=True, slots=True)
class JobClass:
    """A class of jobs.

    Attributes:
        name: Readable name, which is also a file name: name of the script, module or `class:`, and 12 hexadecimal
            digits of the SHA-256 of all parts of the origin that count.
        origin: Definition of the class.
    """

    name: str
    origin: ProfileOrigin


class JobClasses:
    """Finds the classes of the jobs of one plan.

    Each script is read once, however many jobs run it, so all of them see the same version. Nothing is kept for the
    next plan, since a script may have changed by then.
    """

    def __init__(self, device_model: str) -> None:
        self._device_model = device_model
        self._program = cache(_program)
        self._torch = cache(torch_version)

    def of(self, job: JobConfig) -> JobClass:
        """Class of a job that `load` returned. A file that cannot be read is no error: its path counts instead."""
        # A module is searched in the working folder. The modules of a script are in its own folder, wherever it runs.
        program = self._program(job.script, job.module, job.cwd if job.module is not None else None)
        changes = {
            "args": tuple(map(_text, job.args)),
            "device_model": _text(self._devices_of(job)),
            "torch": self._torch(job.python),
            "given": job.job_class,
        }
        # The copy is not validated again, and it shares the digests: ten thousand jobs often have one script.
        origin = program.origin.model_copy(update=changes)
        where = [origin.device_model, origin.torch]
        if origin.given is not None:
            return JobClass(_name(program.prefix + origin.given, "given", *where), origin)
        return JobClass(_name(program.prefix + program.stem, program.digest, origin.args, *where), origin)

    def _devices_of(self, job: JobConfig) -> str:
        """Device model, with the number of devices if there are several: an iteration takes longer or shorter there."""
        if job.gpus == 1:
            return self._device_model
        return f"{job.gpus} {'ranks' if job.launch is Launch.RANKS else 'devices'} of {self._device_model}"


def torch_version(python: str | None) -> str:
    """Version of torch in the interpreter of a job, such as `2.13.0+cpu`, from the metadata of the package.

    An import of torch would take seconds, and so would a call of another interpreter. For another interpreter, the
    package folder is looked up where virtual environments and conda have it. If torch is not found there, its version
    is unknown, and the path of the interpreter stands for it. Then its jobs share no class with jobs of other
    interpreters, and a replacement of torch goes unnoticed.

    Args:
        python: Path of another interpreter; None for this one.

    Returns:
        The version; `none` if this interpreter has no torch.
    """
    if python is None or python == sys.executable:
        folders, otherwise = sys.path, "none"
    else:
        prefix = Path(python).parent.parent  # not resolved: a virtual environment links to another one
        folders = [str(folder) for folder in sorted(prefix.glob("lib/python3*/site-packages"))]
        otherwise = _text(f"unknown, of {python}")
    for found in metadata.distributions(name="torch", path=folders):
        if version := found.metadata["Version"]:
            return _text(version)
    return otherwise


@dataclass(frozen=True, slots=True)
class _Program:
    """Common part of the jobs of one script or module.

    Attributes:
        prefix: `PARTIAL_CLASS` if their sources use partial backpropagation; otherwise empty.
        stem: Beginning of the names of their classes, after the prefix.
        digest: Digest of all sources and, for a module, its name.
        origin: Origin without the parts that each job adds.
    """

    prefix: str
    stem: str
    digest: str
    origin: ProfileOrigin


def _program(script: Path | None, module: str | None, cwd: Path | None) -> _Program:
    if script is not None:
        files, folder = list(local_sources(script)), script.parent
        stem, name = script.stem, None
    else:
        assert module is not None and cwd is not None, "a job has a script or a module"
        files, folder = list(_sources_of_module(module, cwd)), cwd
        stem = name = module  # the name counts: an installed module has no sources here
    sources = _digests(files, folder)
    origin = ProfileOrigin(script=_text(str(script or module)), sources=sources, args=(), device_model="", torch="")
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", stem)[:MAX_STEM].lstrip(".-")
    return _Program(_prefix(files), stem or "job", _digest_of(name, sources), origin)


_PARTIAL = re.compile(rb"^\s*(?:from|import) ecoshare\.contrib\b.*\bspb\b", re.MULTILINE)


def _prefix(sources: Iterable[Path]) -> str:
    for path in sources:
        with suppress(OSError):
            if _PARTIAL.search(path.read_bytes()):
                return PARTIAL_CLASS
    return ""


def _sources_of_module(module: str, cwd: Path) -> Iterable[Path]:
    """Sources of a module in the working folder: file and imports, or whole package. An installed module has none."""
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
        return _text(f"unreadable: {path}")  # two unreadable files never count as equal


def _name(stem: str, *counts: Any) -> str:
    return f"{stem}-{_digest_of(stem, *counts)[:12]}"


def _digest_of(*parts: Any) -> str:
    # JSON, because no character is safe as a separator: arguments may hold any.
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _text(text: str) -> str:
    """Text that UTF-8 can encode. File names may hold other bytes, which Python reads as lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()
