"""Our descriptors in jobs that close descriptors which they did not open: no file of the user's gets our bytes."""

from __future__ import annotations

import os
import resource
import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshare.lane import trace
from ecoshare.lane.tables.shared_memory import OwnFile
from tests.lane.served_lane import ServedLane
from tests.runtime.running import run
from tests.warm import wait_for

APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND

TRAINS = """
import os, sys, torch
limit = int(sys.argv[1])
os.closerange(3, limit)
files = [open(f"mine-{number}", "wb", buffering=0) for number in range(1200 if limit > 1000 else 4)]
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(600):
    optimizer.zero_grad()
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    for file in files[:4]:
        file.write(b"%d " % step)
print("done")
"""

STOPS = """
import os, signal, sys, time
import torch
from ecoshare.lane.tables.lane_table import LaneTable
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(20):
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.005)
with LaneTable(sys.argv[1]).locked():
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(1)  # another thread may be the one that is told to stop all
"""


@pytest.fixture
def lane(tmp_path: Path) -> Iterator[ServedLane]:
    served = ServedLane(tmp_path)
    yield served
    served.close()


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.py"
    path.write_text(textwrap.dedent(text))
    return path


def test_what_was_closed_is_opened_again_wherever_the_script_is_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = OwnFile("own", APPEND)
    monkeypatch.chdir("/")
    before = own.number()
    os.write(before, b"one ")
    os.close(before)
    with (tmp_path / "user's").open("wb", buffering=0) as users:
        os.dup2(users.fileno(), before)
        os.write(own.number(), b"two ")
        own.close()
        os.write(before, b"its own")  # still open, and still the user's
        os.close(before)
    assert (tmp_path / "own").read_text() == "one two "
    assert (tmp_path / "user's").read_text() == "its own"


def test_another_file_at_the_same_place_is_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("ours")
    own = OwnFile(tmp_path / "table", os.O_RDWR)
    os.close(own.number())
    (tmp_path / "table").rename(tmp_path / "old")  # else it may get the same inode
    (tmp_path / "table").write_text("another one's")
    with pytest.raises(OSError, match="Stale file handle"):
        own.number()


def test_a_trace_goes_on_where_it_was_deleted(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    tracer = trace.Tracer(path, opened_s=0.0)
    os.closerange(700, 1024)
    tracer.turn(trace.Kind.TURN_BEGINS, 1.0)
    tracer.turn(trace.Kind.TURN_ENDS, 2.0)
    tracer.close()
    assert [mark.at_s for mark in trace.read(path)] == [1.0, 2.0]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [256, pytest.param(65_536, marks=pytest.mark.slow)])
def test_a_script_that_closes_everything_has_its_files_for_itself(tmp_path: Path, limit: int) -> None:
    """Before, 29 bytes of a user's file became 17,489, and the run failed with `Bad file descriptor`."""
    if limit > 1000 and resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 2000:
        pytest.skip("fewer files may be open here")
    script = written(tmp_path, "closes", TRAINS)
    jobs = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        jobs.append({"name": name, "script": str(script), "args": [str(limit)], "cwd": str(tmp_path / name)})
    done = run(tmp_path, *jobs, options=("--policy", "fair", "--lanes", "1"))
    assert done.code == 0, done.stderr
    for name in ("a", "b"):
        assert done.log(name) == b"done\n"
        assert done.job(name)["iterations"] == 600
        files = list((tmp_path / name).glob("mine-*"))
        expected = b"".join(b"%d " % step for step in range(600))
        assert sorted(file.read_bytes() for file in files)[-4:] == [expected] * 4
        assert {file.stat().st_size for file in files} <= {0, len(expected)}


@pytest.mark.nightly
def test_a_script_finds_no_descriptor_of_ours_where_it_would_get_its_own(tmp_path: Path) -> None:
    """Else the bytes that the job writes to the numbers that it expects would be in its lane's table."""
    script = written(
        tmp_path,
        "looks",
        """
        import os
        import torch
        for each in os.listdir("/proc/self/fd"):
            if os.path.exists(f"/proc/self/fd/{each}"):
                print(each, os.readlink(f"/proc/self/fd/{each}"))
        """,
    )
    done = run(tmp_path, {"name": "a", "script": str(script)})
    files = dict(line.split(maxsplit=1) for line in done.log("a").decode().splitlines())
    ours = [int(number) for number, path in files.items() if path.endswith(("/lane0", "/trace.bin"))]
    assert len(ours) == 2 and min(ours) >= 768, files


@pytest.mark.slow
@pytest.mark.parametrize("fused", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_job_that_is_stopped_with_the_lanes_lock_ends_and_its_neighbour_goes_on(
    lane: ServedLane, tmp_path: Path, fused: bool
) -> None:
    """Before, the controller and the server waited for ever."""
    stops = written(tmp_path, "stops", STOPS)
    trains = written(tmp_path, "trains", TRAINS)
    lane.start("stops", stops, lane.table.path, fused=fused)
    lane.start("trains", trains, "4", fused=False)
    ended = lane.ended("stops")
    assert ended.outcome == "timed out", ended
    assert "stopped (SIGSTOP) while it held its lane's lock" in ended.reason
    assert lane.ended("trains").outcome == "completed"


@pytest.mark.slow
def test_the_lock_is_had_when_the_stopped_one_is_gone(tmp_path: Path, lane: ServedLane) -> None:
    """Supervisor in the controller, which ends no process itself."""
    told: list[int] = []

    def hung(pid: int) -> None:
        told.append(pid)
        os.kill(pid, signal.SIGKILL)

    child = os.fork()
    if child == 0:
        with type(lane.table)(lane.table.path).locked():
            os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    wait_for(lambda: lane.table.stopped_owner() == child)
    lane.table.tell_of_hung(hung)
    with lane.table.locked():
        assert told == [child]
    os.waitpid(child, 0)
    assert lane.table.stopped_owner() is None
