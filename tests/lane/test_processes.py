"""Names of processes: what `ps` and `top` show of a job, and what stays as it was."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ecoshare.lane.processes import cleans_up
from tests.lane.served_lane import ServedLane
from tests.warm import ROOT, wait_for

SHOWS = """
import json, os, sys, threading
from pathlib import Path

def shown(folder="/proc/self"):
    names = ("cmdline", "comm")
    return [Path(folder, name).read_bytes().decode().rstrip("\\0\\n") for name in names]

print(json.dumps([*shown(), sys.argv, shown(f"/proc/self/task/{threading.get_native_id()}")[1]]))
"""


@pytest.fixture(scope="module")
def lane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLane]:
    served = ServedLane(tmp_path_factory.mktemp("lane"))
    yield served
    served.close()


@pytest.mark.parametrize(
    ("job", "fields", "line", "comm"),
    [
        ("cnn", {"fused": False}, "ecoshare: cnn: train.py --epochs 3", "ecoshare:cnn"),
        ("resnet50", {"fused": False, "fresh": True}, "ecoshare: resnet50: train.py --epochs 3", "ecoshare:resnet"),
        (
            "elsewhere",
            {"fused": False, "cwd": Path("/usr")},
            "ecoshare: elsewhere: {script} --epochs 3",
            "ecoshare:elsewh",
        ),
        ("trial", {}, "ecoshare: lane0: train.py", "ecoshare:lane0"),
    ],
)
def test_ps_shows_a_job_by_its_name_with_its_command_line(
    job: str, fields: dict[str, Any], line: str, comm: str, lane: ServedLane, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SHOWS)
    lane.start(job, script, "--epochs", "3", **fields)
    assert lane.ended(job).outcome == "completed", lane.printed(job, "stderr")
    shown, name, argv, thread = json.loads(lane.printed(job))
    assert (shown, name) == (line.format(script=script), comm)
    own = str(script) if "cwd" in fields else script.name
    assert argv == [own, "--epochs", "3"], "the script itself sees no difference"
    assert thread == (name if "fused" in fields else "ecoshare:trial"), "a job that is a thread has a name of its own"


def test_the_environment_that_others_see_stays(tmp_path: Path) -> None:
    """If it failed, `kill -9` of a run's controller would leave jobs: they are found by the token there (0005)."""
    changes = """
import sys
from pathlib import Path
from ecoshare.lane.processes import show_as
before = Path("/proc/self/environ").read_bytes()
show_as("cnn", ["train.py", "x" * 10_000])
assert Path("/proc/self/environ").read_bytes() == before
assert b"ECOSHARE_RUN=a-token" in before.split(bytes(1)), before
sys.stdout.write(Path("/proc/self/cmdline").read_text())
"""
    environment = {"ECOSHARE_RUN": "a-token", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    line = [sys.executable, "-c", changes]
    done = subprocess.run(line, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    room = sum(len(word) + 1 for word in line) - 2
    assert done.stdout == f"ecoshare: cnn: train.py {'x' * 10_000}"[:room] + "\0", "not more than there was"


def test_a_program_with_a_short_command_line_keeps_it(tmp_path: Path) -> None:
    """A call runs in a fork of the user's `python study.py`. Half of a name would hide that it is one."""
    (tmp_path / "x.py").write_text(
        "from ecoshare.lane.processes import show_as\n"
        "show_as('study 0017', ['x.py'])\n"
        "print(*(open(f'/proc/self/{name}').read().strip() for name in ('cmdline', 'comm')), sep='|')\n"
    )
    environment = {"PYTHONPATH": str(ROOT)}
    line = ["python", "x.py"]
    done = subprocess.run(
        line, executable=sys.executable, env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == "python\0x.py\0|ecoshare:study-\n", done.stderr


def test_a_job_with_the_name_of_a_cleaner_is_no_cleaner(lane: ServedLane, tmp_path: Path) -> None:
    """If it failed, such a job would outlive its run by a second."""
    script = tmp_path / "waits.py"
    script.write_text("import time\nprint('there', flush=True)\ntime.sleep(60)\n")
    pid = lane.pid(lane.start("torch_shm_manager", script, fused=False))
    wait_for(lambda: lane.printed("torch_shm_manager") == b"there\n")
    assert not cleans_up(pid)
    lane.stop("torch_shm_manager", at_once=True)
    lane.ended("torch_shm_manager")
