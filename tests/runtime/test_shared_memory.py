"""Shared memory of a job is removed at any end of the job, so that unused memory does not fill the machine."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from ecoshare.runtime.nodes import cleanup
from tests.runtime.running import job_file, run, start
from tests.runtime.test_kill import token_of
from tests.warm import wait_for

LEAKS = """
import os, signal, sys, time
from multiprocessing.shared_memory import SharedMemory
import torch
kept = SharedMemory(create=True, size=1 << 20, name=sys.argv[1])
print("made", flush=True)
if sys.argv[2] == "raises":
    raise ValueError("labels ran out")
if sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "hangs":
    time.sleep(600)
"""


def leaking(folder: Path, end: str, **keys: Any) -> dict[str, Any]:
    """Script that makes a megabyte of shared memory and does not remove it."""
    (folder / "leaks.py").write_text(LEAKS)
    return {"name": end, "script": "leaks.py", "args": [name_of(end), end], **keys}


def name_of(end: str) -> str:
    return f"ecoshare-test-{os.getpid()}-{end}"


def is_there(end: str) -> bool:
    return Path("/dev/shm", name_of(end)).exists()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "end", ["completes", *(pytest.param(end, marks=pytest.mark.slow) for end in ("raises", "killed", "hangs"))]
)
def test_shared_memory_of_a_job_goes_with_it(tmp_path: Path, end: str) -> None:
    """Before, it stayed in 18 of 24 cases: the tracker that removes it was killed with the job's other processes."""
    done = run(tmp_path, leaking(tmp_path, end, timeout="1 s", startup_timeout="1 s"))
    assert done.log(end).startswith(b"made")
    assert done.job(end)["state"] == ("completed" if end == "completes" else "failed")
    assert not is_there(end)


@pytest.mark.nightly
@pytest.mark.parametrize("signals", [[signal.SIGINT, signal.SIGINT], [signal.SIGKILL]])
def test_shared_memory_goes_with_a_run_that_is_ended(tmp_path: Path, signals: list[signal.Signals]) -> None:
    process = start(job_file(tmp_path, leaking(tmp_path, "hangs")))
    log = tmp_path / "ecoshare-runs/latest/jobs/hangs/stdout.log"
    # The memory is there before its tracker: `SharedMemory` makes the one and then starts the other.
    wait_for(lambda: log.exists() and log.read_bytes().startswith(b"made"))
    assert is_there("hangs")
    for number in signals:
        process.send_signal(number)
        time.sleep(0.3)  # two of a kind at once are one
    process.communicate(timeout=40)
    wait_for(lambda: not cleanup.members(token_of(tmp_path)))
    assert not is_there("hangs")
