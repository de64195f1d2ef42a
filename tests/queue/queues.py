"""Queues for tests, each in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ecoshare.api.queue_client import Queue
from ecoshare.core.events import RunOpened
from ecoshare.errors import EcoshareError
from ecoshare.record import event_log
from tests.warm import Started, ecoshare, wait_for

UP = ("--device", "cpu", "--no-profiles", "--policy", "fair")
"""Options of a queue with decisions that the speed of this machine does not change."""

WAITS = """
import os, sys, time
print("begun", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
print("went", flush=True)
"""
"""Script that waits until a file exists."""


@dataclass
class Served:
    """A queue that is up.

    Attributes:
        folder: Working folder of its user.
        process: Process that serves it.
    """

    folder: Path
    process: Started

    @property
    def queue(self) -> Queue:
        """The queue, in this process."""
        return Queue("test")

    @property
    def home(self) -> Path:
        """Folder of the queue."""
        return self.folder / "state" / "queues" / "test"

    @property
    def run(self) -> Path:
        """The run folder."""
        return self.home / "runs" / "latest"

    def ask(self, command: str, *words: str) -> subprocess.CompletedProcess[str]:
        """A finished command of the user."""
        done = ecoshare(command, "--queue", "test", *words, cwd=self.folder)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def lines(self, *words: str) -> list[str]:
        """Lines on stdout of a command that succeeds."""
        done = self.ask(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def kill(self) -> None:
        """Kill the process that serves the queue, and wait until its guard has ended what it started."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def waits(self, name: str, *more: str) -> Path:
        """Submit a job that runs until the returned file exists, and wait until it has begun."""
        (self.folder / "waits.py").write_text(WAITS)
        go = self.folder / f"go-{name}"
        self.lines("submit", "waits.py", "--name", name, *more, "--", str(go))
        return go

    def begun(self, name: str) -> None:
        """Wait until a job has written its first line."""
        path = self.run / "jobs" / name / "stdout.log"
        wait_for(lambda: path.exists() and path.read_text(), otherwise=lambda: self.process.stderr)


@contextlib.contextmanager
def served(folder: Path, *options: str) -> Iterator[Served]:
    """Context manager: a queue is up, and its process is gone at the end. `ECOSHARE_STATE` lies in the folder."""
    assert os.environ["ECOSHARE_STATE"] == str(folder / "state")
    process = Started("up", "--name", "test", *UP, *options, cwd=folder)
    found = Served(folder, process)
    try:
        wait_for(lambda: _answers() or process.poll() is not None, otherwise=lambda: process.stderr)
        assert process.poll() is None, process.stderr
        yield found
        assert "Traceback" not in process.stderr, process.stderr
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
            process.wait(60)


def _answers() -> bool:
    with contextlib.suppress(EcoshareError):
        return bool(Queue("test").status(0).name)
    return False


def check_replay(run: Path) -> None:
    """Check that a fresh core decides as the log of a queue says."""
    entries = list(event_log.read(run / "events.jsonl"))
    assert isinstance(entries[0], RunOpened)
    for event, logged, now in event_log.replay(iter(entries)):
        assert logged == now, event
