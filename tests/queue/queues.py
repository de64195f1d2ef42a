"""Queues for tests, each in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

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

TRAINS = """
import time, torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters())
for _ in range(100000):
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    until = time.process_time() + 0.005
    while time.process_time() < until:
        pass
"""
"""Script with 100,000 iterations of 5 ms of processor time."""


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

    @property
    def bearer(self) -> dict[str, str]:
        """Header of requests over TCP."""
        return {"Authorization": f"Bearer {(self.home / 'token').read_text()}"}

    def http(self) -> httpx.Client:
        """Client over TCP, which sends no token by itself."""
        return httpx.Client(base_url=(self.home / "address").read_text(), timeout=20.0)

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
        if not (script := self.folder / "waits.py").exists():  # else one that starts now would read half of it
            script.write_text(WAITS)
        go = self.folder / f"go-{name}"
        self.lines("submit", "waits.py", "--name", name, *more, "--", str(go))
        return go

    def begun(self, name: str) -> None:
        """Wait until a job has written its first line."""
        path = self.run / "jobs" / name / "stdout.log"
        wait_for(lambda: path.exists() and path.read_text(), otherwise=lambda: self.process.stderr)


@contextlib.contextmanager
def served(folder: Path, *options: str, cold: bool = False, segment_bytes: int | None = None) -> Iterator[Served]:
    """Context manager: a queue is up, and its process is gone at the end. `ECOSHARE_STATE` lies in the folder.

    Args:
        folder: Working folder of the user.
        options: Options of `ecoshare up`.
        cold: Whether the process loads only what a user's process loads.
        segment_bytes: Size from which the log begins anew; None for the usual one.
    """
    assert os.environ["ECOSHARE_STATE"] == str(folder / "state")
    words = ("up", "--name", "test", *UP, *options)
    if segment_bytes is None:
        process = Started(*words, cwd=folder, cold=cold)
    else:
        script = Path(__file__).with_name("short_segments.py")
        environment = {**os.environ, "SEGMENT_BYTES": str(segment_bytes)}
        process = Started(*words, cwd=folder, script=script, environment=environment)
    found = Served(folder, process)
    try:
        wait_for(lambda: answers() or process.poll() is not None, otherwise=lambda: process.stderr)
        assert process.poll() is None, process.stderr
        yield found
        assert "Traceback" not in process.stderr, process.stderr
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
            process.wait(60)


@contextlib.contextmanager
def served_alone(folder: Path, *options: str) -> Iterator[Served]:
    """Context manager for the tests of a module: a queue is up, with its state in the folder.

    Args:
        folder: Working folder of its user.
        options: Options of `ecoshare up`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ECOSHARE_STATE", str(folder / "state"))
        patch.delenv("ECOSHARE_QUEUE", raising=False)
        with served(folder, *options) as found:
            yield found


def served_over_tcp(folder: Path) -> AbstractContextManager[Served]:
    """Context manager: the same, with a queue that listens over TCP."""
    return served_alone(folder, "--listen", "127.0.0.1:0")


def answers() -> bool:
    """Whether the queue answers, which it does some moments after its socket is there."""
    with contextlib.suppress(EcoshareError):
        return bool(Queue("test").status(0).name)
    return False


def check_replay(run: Path) -> None:
    """Check that a fresh core decides as the log of a queue says."""
    entries = list(event_log.read(run / "events.jsonl"))
    assert isinstance(entries[0], RunOpened)
    for event, logged, now in event_log.replay(iter(entries)):
        assert logged == now, event
