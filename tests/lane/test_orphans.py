"""Processes that a job leaves behind end with it, and none of another job's does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshare.lane import processes
from tests.lane.served_lane import ServedLane
from tests.warm import wait_for

LEAVES = """
import os, subprocess, sys, time
import ecoshare

def note(pid):
    with open(sys.argv[2], "a") as pids:
        print(pid, file=pids)

how = sys.argv[1]
if how == "program":
    note(subprocess.Popen(["sleep", "600"], start_new_session=True).pid)
elif how == "program without its environment":
    note(subprocess.Popen(["sleep", "600"], start_new_session=True, env={}).pid)
elif how == "daemon":
    if not os.fork():
        os.setsid()
        if not os.fork():
            note(os.getpid())
            time.sleep(600)
        os._exit(0)
    os.wait()
while not os.path.exists(sys.argv[3]):
    ecoshare.iteration()
    time.sleep(0.02)
"""


@pytest.fixture
def lane(tmp_path: Path) -> Iterator[ServedLane]:
    served = ServedLane(tmp_path)
    served.hand_over_always()
    yield served
    served.close()


class Leaver:
    """Job that leaves one process behind.

    Attributes:
        name: Name of the job.
    """

    def __init__(self, lane: ServedLane, name: str, how: str) -> None:
        self.name, self._lane = name, lane
        self._noted, self._over = lane.folder / f"{name}.pid", lane.folder / f"{name}.over"
        script = lane.folder / "leaves.py"
        script.write_text(LEAVES)
        env = {"ECOSHARE_JOB": name, "ECOSHARE_ATTEMPT": "1"}
        lane.start(name, script, how, str(self._noted), str(self._over), fused=False, env=env)
        wait_for(lambda: self._noted.exists() and self._noted.read_text().endswith("\n"), 60.0)
        self.left = int(self._noted.read_text())

    def end(self) -> None:
        """Let the job end."""
        self._over.touch()
        self._lane.ended(self.name)


def is_there(pid: int) -> bool:
    """Whether a process has not ended."""
    return Path(f"/proc/{pid}").exists() and processes.resident_bytes([pid]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["program", "daemon"])
def test_what_a_job_leaves_behind_ends_with_it(how: str, lane: ServedLane) -> None:
    one, other = Leaver(lane, "one", how), Leaver(lane, "other", how)
    one.end()
    wait_for(lambda: not is_there(one.left))
    assert is_there(other.left), "it is another job's, which runs"
    other.end()
    wait_for(lambda: not Path(f"/proc/{other.left}").exists())  # it was waited for, too


@pytest.mark.slow
def test_a_process_that_tells_nothing_ends_after_the_last_job_that_may_have_started_it(lane: ServedLane) -> None:
    one = Leaver(lane, "one", "program without its environment")
    other = Leaver(lane, "other", "program without its environment")
    one.end()
    later = Leaver(lane, "later", "daemon")
    assert is_there(one.left) and is_there(other.left)
    other.end()
    wait_for(lambda: not is_there(one.left))
    assert is_there(later.left)
    later.end()
    wait_for(lambda: not is_there(later.left))
