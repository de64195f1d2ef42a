"""kill -9 of the controller, its guard or the jobs' supervisor at any moment: nothing stays behind, nothing is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ecoshare.core.commands import StartJob
from ecoshare.runtime import log, reaping
from tests.runtime.running import ECOSHARE, SCRIPTS, command, job_file, slow_steps

QUICK, ALL = 2, 50


def jobs(folder: Path) -> list[dict[str, object]]:
    """Four jobs of different lengths, one with DataLoader workers; each notes its end in a file of its own."""
    several = [slow_steps(f"j{n}", 10 + 25 * n, 10, args=["--done", str(folder / f"done-j{n}")]) for n in range(3)]
    return [*several, {"name": "workers", "script": str(SCRIPTS / "workers.py")}]


def start(folder: Path) -> subprocess.Popen[str]:
    path = job_file(folder, *jobs(folder))
    return subprocess.Popen(
        command(path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def children(pid: int) -> dict[str, int]:
    """The guard and the supervisor of a controller."""
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        line = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        for role, module in (("guard", b"ecoshare.runtime.guard"), ("supervisor", b"ecoshare.lane.server")):
            if module in line:
                found[role] = int(child)
    return found


def wait_for_jobs(folder: Path) -> None:
    """Until the first job has been started."""
    until_s = time.monotonic() + 30
    while not list((folder / "runs/latest/jobs").glob("*/stdout.log")):
        assert time.monotonic() < until_s, "no job was started"
        time.sleep(0.01)


def token_of(folder: Path) -> str:
    return str(json.loads((folder / "runs/latest/environment.json").read_text())["token"])


def recorded(folder: Path) -> set[str]:
    """Jobs whose success is on the disk."""
    paths = (folder / "runs/latest/jobs").glob("*/exit-*.json")
    return {path.parent.name for path in paths if json.loads(path.read_text())["outcome"] == "completed"}


def ends(folder: Path) -> dict[str, int]:
    """How often each job has noted its end."""
    return {path.name[5:]: len(path.read_text().splitlines()) for path in folder.glob("done-*")}


def kill_and_resume(folder: Path, victim: str, after_s: float) -> None:
    process = start(folder)
    events = folder / "runs/latest/events.jsonl"
    until_s = time.monotonic() + 30
    while not (events.exists() and len(children(process.pid)) == 2) and time.monotonic() < until_s:
        time.sleep(0.01)
    if victim == "supervisor" and after_s > 1:
        wait_for_jobs(folder)
    time.sleep(after_s)
    if victim == "controller":
        os.kill(process.pid, signal.SIGKILL)
    elif victim in (found := children(process.pid)):
        os.kill(found[victim], signal.SIGKILL)
    _, stderr = process.communicate(timeout=120)
    assert "Traceback" not in stderr, stderr

    token = token_of(folder)
    until_s = time.monotonic() + 2.0
    while (left := reaping.members(token)) and time.monotonic() < until_s:
        time.sleep(0.02)
    assert not left, [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left]

    if victim != "controller":
        assert process.returncode == 0, stderr
        assert recorded(folder) == {"j0", "j1", "j2", "workers"}
    before, ended_before = recorded(folder), ends(folder)
    started = {each.job for each in log.read(folder / "runs/latest/events.jsonl") if isinstance(each, StartJob)}
    shown = subprocess.run(
        [*ECOSHARE, "export", str(folder / "runs/latest")], capture_output=True, text=True, check=True
    )
    assert {job["name"] for job in json.loads(shown.stdout)["jobs"] if job["state"] == "completed"} <= before
    resumed = subprocess.run(
        [*ECOSHARE, "run", "--resume", str(folder / "runs/latest"), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert {job["state"] for job in json.loads(resumed.stdout)["jobs"]} == {"completed"}
    if victim == "controller":
        attempts = {job["name"]: job["attempts"] for job in json.loads(resumed.stdout)["jobs"]}
        again = {name for name in started if name not in before}
        assert all(attempts[name] == (2 if name in again else 1) for name in attempts), (attempts, again)
    for name, count in ends(folder).items():
        assert count == ended_before[name] if name in before else count >= 1, f"{name} ran again though it had finished"
    assert not reaping.members(token)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(QUICK))
def test_a_killed_controller_or_guard(tmp_path: Path, number: int) -> None:
    dice = random.Random(number)
    kill_and_resume(tmp_path, ["controller", "guard"][number % 2], dice.uniform(0, 4.5))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(QUICK, ALL))
def test_a_killed_controller_or_guard_again_and_again(tmp_path: Path, number: int) -> None:
    dice = random.Random(number)
    kill_and_resume(tmp_path, dice.choice(["controller", "guard"]), dice.uniform(0, 4.5))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("after_s", [0.3, pytest.param(1.2, marks=pytest.mark.slow)])
def test_a_killed_supervisor_is_replaced_and_its_jobs_run_again(tmp_path: Path, after_s: float) -> None:
    """While torch is loading, and while jobs run."""
    kill_and_resume(tmp_path, "supervisor", after_s)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("loads", [True, False])
def test_a_controller_that_is_killed_before_torch_is_loaded_leaves_no_process(tmp_path: Path, loads: bool) -> None:
    process = start(tmp_path)
    while "supervisor" not in children(process.pid):
        time.sleep(0.001)
    supervisor = children(process.pid)["supervisor"]
    while loads and b"libtorch_cpu" not in Path(f"/proc/{supervisor}/maps").read_bytes():
        time.sleep(0.005)
    if "guard" in (found := children(process.pid)):
        os.kill(found["guard"], signal.SIGKILL)
    process.kill()
    process.communicate()
    until_s = time.monotonic() + 0.5
    while (left := reaping.members(token_of(tmp_path))) and time.monotonic() < until_s:
        time.sleep(0.02)
    assert not left, "nobody but the kernel can tell the server, which hears nothing while it loads"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_first_job_ends_the_server(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path)
    while "supervisor" not in children(process.pid):
        time.sleep(0.001)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr, stderr
    assert not reaping.members(token_of(tmp_path))


def test_guard_and_controller_both(tmp_path: Path) -> None:
    """The supervisor itself ends the jobs when both are gone."""
    process = start(tmp_path)
    wait_for_jobs(tmp_path)
    os.kill(children(process.pid)["guard"], signal.SIGKILL)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    token = token_of(tmp_path)
    until_s = time.monotonic() + 2.0
    while (left := reaping.members(token)) and time.monotonic() < until_s:
        time.sleep(0.02)
    assert (tmp_path / "runs/latest/events.jsonl").exists()
    assert not left, [(pid, Path(f"/proc/{pid}/status").read_text()) for pid in left]
