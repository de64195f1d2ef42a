"""Job files that benchmarks write."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Required, TypedDict

JobEntry = TypedDict(
    "JobEntry",
    {
        "name": Required[str],
        "script": Required[str],
        "args": list[str],
        "class": str,
        "iterations": int,
        "sweep": dict[str, object],
        "isolation": str,
        "priority": int,
        "gpus": int,
        "launch": str,
        "service": dict[str, object],
        "arrival": str,
    },
    total=False,
)
"""One job of a job file, with the keys that benchmarks use."""


def write_jobs(folder: Path, jobs: Sequence[JobEntry]) -> Path:
    """Write `jobs.yaml` into a folder; returns its path. JSON is YAML, too."""
    path = folder / "jobs.yaml"
    path.write_text(json.dumps({"version": 1, "jobs": jobs}))
    return path
