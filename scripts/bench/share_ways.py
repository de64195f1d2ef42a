"""Ways in which bench_share.py runs a mix: as plain processes after or beside each other, and through ecoshare.

Plain processes run in the user's own environment, with the threads that they take by themselves.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.job_file import JobEntry, write_jobs

_LOOK_EVERY_S = 0.01


@dataclass(frozen=True)
class Task:
    """One job of a mix.

    Attributes:
        iterations: Total number of iterations, for the job file.
    """

    name: str
    script: Path
    args: Sequence[str]
    iterations: int

    @property
    def line(self) -> list[str]:
        """Command line of a plain process."""
        return [sys.executable, str(self.script), *self.args]

    @property
    def entry(self) -> JobEntry:
        """Entry of a job file."""
        return {"name": self.name, "script": str(self.script), "args": [*self.args], "iterations": self.iterations}


def one_after_the_other(tasks: Sequence[Task]) -> list[float]:
    """JCT (s) of each job, one after the other; all arrive at the beginning."""
    began_s = time.monotonic()
    jcts_s = []
    for task in tasks:
        subprocess.run(task.line, check=True, capture_output=True)
        jcts_s.append(time.monotonic() - began_s)
    return jcts_s


def all_at_once(tasks: Sequence[Task], limit_s: float) -> list[float] | None:
    """JCT (s) of each job, all at once; None if they are not done after `limit_s`.

    Raises:
        RuntimeError: A job fails.
    """
    began_s = time.monotonic()
    running = {subprocess.Popen(task.line, stdout=subprocess.DEVNULL): task for task in tasks}
    jcts_s = []
    try:
        while running and time.monotonic() - began_s < limit_s:
            for process in [each for each in running if each.poll() is not None]:
                task = running.pop(process)
                if process.returncode:
                    raise RuntimeError(f"{task.name} ended with exit code {process.returncode}")
                jcts_s.append(time.monotonic() - began_s)
            time.sleep(_LOOK_EVERY_S)
        return None if running else jcts_s
    finally:
        for process in running:
            process.kill()
            process.wait()


def shared(tasks: Sequence[Task], *options: str) -> list[float]:
    """JCT (s) of each job through ecoshare, and of the whole command as the last.

    Args:
        options: Options of `ecoshare run`.

    Raises:
        RuntimeError: The command fails.
    """
    with tempfile.TemporaryDirectory() as name:
        path = write_jobs(Path(name), [task.entry for task in tasks])
        line = [sys.executable, "-m", "ecoshare", "run", str(path), "--device", "cpu", "--json"]
        began_s = time.monotonic()
        done = subprocess.run(
            [*line, "--runs", str(Path(name) / "runs"), *options], capture_output=True, text=True, check=False
        )
        whole_s = time.monotonic() - began_s
        if done.returncode:
            raise RuntimeError(done.stderr)
        finishes_s = [job["finish_s"] for job in json.loads(done.stdout)["jobs"]]
    # The command's own start and end count: its last job is done when it returns.
    return [*sorted(finishes_s)[:-1], whole_s]
