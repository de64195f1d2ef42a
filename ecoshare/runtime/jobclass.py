"""The class of a job: what its profile is kept for."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from ecoshare.lane.sources import local_sources


def job_class(name: str, script: Path | None, module: str | None, args: tuple[str, ...], device_model: str) -> str:
    """A readable name that is equal for jobs of which one's profile serves the other.

    It covers the script, the local modules that it imports, all its arguments and the model of the device; a change in
    any of them is a new class. A module given by name (`module:`) counts by its name alone.

    Args:
        name: Of the job, for modules and unreadable scripts.
    """
    digest = hashlib.sha256(_digest_of_sources(script) if script is not None else str(module).encode())
    for part in (*args, device_model):
        digest.update(b"\0" + part.encode())
    return f"{script.stem if script is not None else module or name}-{digest.hexdigest()[:12]}"


@cache
def _digest_of_sources(script: Path) -> bytes:
    digest = hashlib.sha256()
    for source in local_sources(script):
        try:
            digest.update(source.read_bytes() + b"\0")
        except OSError:
            digest.update(str(source).encode())
    return digest.digest()
