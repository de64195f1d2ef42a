"""No program that a launcher has started outlives it, even in a session of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshare.lane import processes
from tests.lane.served_lane import ServedLane
from tests.warm import wait_for

SCRIPT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def lane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLane]:
    served = ServedLane(tmp_path_factory.mktemp("lane"))
    yield served
    served.close()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("end", ["stop", "kill", "exit"])
def test_ranks_end_before_their_lane_goes_on(lane: ServedLane, tmp_path: Path, end: str) -> None:
    """A rank that is left would work on the device in the turns of the next job."""
    script = tmp_path / "launches.py"
    script.write_text(SCRIPT.replace("time.sleep(600)\n", "") if end == "exit" else SCRIPT)
    env = {"ECOSHARE_JOB": end, "ECOSHARE_ATTEMPT": "1"}
    launch = lane.start(end, script, fused=False, launcher="torchrun", env=env)
    pid = lane.pid(launch)
    wait_for(lambda: lane.printed(end).endswith(b"\n"))
    rank = int(lane.printed(end))
    if end == "stop":
        lane.stop(end, at_once=True)
    elif end == "kill":
        os.kill(pid, signal.SIGKILL)
    lane.ended(end)
    wait_for(lambda: not is_running(rank))


CONTROL = """#!/bin/sh
read question
echo "$question" >> {folder}/asked
case "$question" in
get_server_list) echo 7 ;;
get_client_list*) cat {folder}/clients ;;
esac
"""


def test_the_daemon_of_a_shared_context_is_told_of_each_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is killed without a word to the daemon may harm the jobs that share its context."""
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text(CONTROL.format(folder=tmp_path))
    control.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    job = subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, start_new_session=True)
    assert job.stdout is not None
    rank = int(job.stdout.readline())
    (tmp_path / "clients").write_text(f"{rank}\n{os.getpid()}\n")
    processes.kill_family(job.pid, "pipes")
    job.wait()
    job.stdout.close()
    wait_for(lambda: not is_running(rank))
    ended = [line for line in (tmp_path / "asked").read_text().splitlines() if line.startswith("terminate_client")]
    assert ended == [f"terminate_client 7 {rank}"], "the other client is no process of the job"
