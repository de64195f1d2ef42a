"""Other programs on the GPU while a job is measured: which of them disturb."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ecoshare.runtime.measuring.device_session import Bystanders

NAMED = """
import pathlib, sys, time
pathlib.Path("/proc/self/comm").write_text(sys.argv[1])
print("named", flush=True)
time.sleep(1000)
"""


@contextmanager
def program(name: str) -> Iterator[int]:
    """Process of another program, by its name."""
    with subprocess.Popen([sys.executable, "-c", NAMED, name], stdout=subprocess.PIPE) as made:
        try:
            assert made.stdout is not None and made.stdout.readline() == b"named\n"
            yield made.pid
        finally:
            made.kill()


@pytest.mark.parametrize(
    ("name", "disturbs"),
    [("trains", "1 other process used the GPU"), ("nvidia-cuda-mps-server", ""), ("nvidia-smi", "1 other")],
)
def test_the_server_of_a_daemon_is_no_disturbance(name: str, disturbs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile of a machine with a daemon of its administrator was always called disturbed."""
    monkeypatch.setattr("ecoshare.devices.processor_load.LoadWatch.disturbance", lambda self: None)
    with program(name) as pid:
        bystanders = Bystanders("none", lambda: {os.getpid(): 1 << 30, pid: 1 << 28})
        said = bystanders.disturbed(bystanders.watch())
    assert said.startswith(disturbs)
    assert bool(said) == bool(disturbs)
