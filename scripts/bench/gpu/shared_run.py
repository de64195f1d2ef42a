"""Runs of ecoshare on the GPU, for the checks that compare jobs alone and shared."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.bench.job_file import JobEntry, write_jobs


@dataclass(frozen=True)
class SharedRun:
    """One finished run.

    Attributes:
        summary: The JSON object that `ecoshare run --json` prints.
        folder: Folder of the run, with logs and traces.
        wall_s: Wall time of the whole command.
    """

    summary: dict[str, Any]
    folder: Path
    wall_s: float

    def printed(self, job: str) -> bytes:
        """Standard output of a job."""
        return (self.folder / "jobs" / job / "stdout.log").read_bytes()


def share(folder: Path, jobs: Sequence[JobEntry], *options: str) -> SharedRun:
    """Run jobs on a GPU under the policy `fair`.

    Args:
        folder: New folder for the job file and the run.
        jobs: Entries of the job file.
        options: More options of `ecoshare run`; `--device` names other devices than the first GPU.

    Raises:
        RuntimeError: The command printed no summary.
    """
    folder.mkdir()
    path = write_jobs(folder, jobs)
    line = [sys.executable, "-m", "ecoshare", "run", str(path), "--device", "cuda:0", "--control", "off", "--json"]
    line += ["--policy", "fair"]
    began_s = time.monotonic()
    done = subprocess.run(
        [*line, "--runs", str(folder / "runs"), *options], capture_output=True, text=True, check=False
    )
    if not done.stdout:
        raise RuntimeError(done.stderr)
    return SharedRun(json.loads(done.stdout), folder / "runs" / "latest", time.monotonic() - began_s)
