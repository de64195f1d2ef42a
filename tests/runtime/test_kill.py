"""After kill -9 of controller, guard or supervisor at any moment, nothing stays behind and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from ecoshare.core.commands import StartJob
from ecoshare.core.events import RunOpened
from ecoshare.record import event_log
from ecoshare.runtime.nodes import cleanup
from scripts.fuzz.processes import is_guard
from tests.rounds import rounds
from tests.runtime.running import SCRIPTS, job_file, parent, resume, run, slow_steps
from tests.runtime.running import start as start_run
from tests.warm import Started, ecoshare, wait_for

ALL, COLD = rounds(4, nightly=16), rounds(2, nightly=4)
"""Number of rounds with a warm server, and with a server that loads."""

SLOW = pytest.mark.slow


def jobs(folder: Path) -> list[dict[str, object]]:
    """Four jobs of different lengths, one with DataLoader workers; each writes its end to a file of its own."""
    several = [slow_steps(f"j{n}", 10 + 25 * n, 10, args=["--done", str(folder / f"done-j{n}")]) for n in range(3)]
    return [*several, {"name": "workers", "script": str(SCRIPTS / "workers.py")}]


def start(folder: Path, cold: bool = False) -> Started:
    return start_run(job_file(folder, *jobs(folder)), new_session=True, cold=cold)


def roles(controller: int, folder: Path) -> dict[str, int]:
    """Guard and supervisor of a controller, as soon as they exist."""
    found: dict[str, int] = {}
    try:
        children = Path(f"/proc/{controller}/task/{controller}/children").read_text().split()
    except OSError:  # it has ended
        return found
    for child in children:
        if is_guard(int(child)):
            found["guard"] = int(child)
    with contextlib.suppress(FileNotFoundError):  # the run has not begun, or a process is gone
        members = cleanup.members(token_of(folder))
        # Jobs are its children. The parent is no process of the run: the controller, or the zygote of the tests.
        found.update([("supervisor", pid) for pid in members if parent(pid) not in members])
    return found


def wait_for_jobs(folder: Path) -> None:
    """Wait for the start of the first job."""
    wait_for(lambda: list((folder / "ecoshare-runs/latest/jobs").glob("*/stdout.log")))


def token_of(folder: Path) -> str:
    return str(json.loads((folder / "ecoshare-runs/latest/environment.json").read_text())["token"])


def recorded(folder: Path) -> set[str]:
    """Jobs with a success on the disk."""
    paths = (folder / "ecoshare-runs/latest/jobs").glob("*/exit-*.json")
    return {path.parent.name for path in paths if json.loads(path.read_text())["outcome"] == "completed"}


def ends(folder: Path) -> dict[str, int]:
    """Number of ends that each job has written."""
    return {path.name[5:]: len(path.read_text().splitlines()) for path in folder.glob("done-*")}


def gone(token: str, within_s: float) -> None:
    """Wait until no process of the run with this token is left."""
    wait_for(lambda: not cleanup.members(token), within_s, lambda: [_described(pid) for pid in cleanup.members(token)])


def _described(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/status").read_bytes()
    return b"gone"


def kill_and_resume(folder: Path, victim: str, after_s: float, cold: bool = False) -> None:
    process = start(folder, cold)
    events = folder / "ecoshare-runs/latest/events.jsonl"
    wait_for(lambda: events.exists() and {"guard", "supervisor"} <= roles(process.pid, folder).keys())
    if victim == "supervisor" and after_s > 1:
        wait_for_jobs(folder)
    time.sleep(after_s)
    if victim == "controller":
        process.kill()
    elif victim in (found := roles(process.pid, folder)):
        os.kill(found[victim], signal.SIGKILL)
    _, stderr = process.communicate(timeout=120)
    assert "Traceback" not in stderr, stderr
    token = token_of(folder)
    gone(token, 20.0)

    if victim != "controller":
        assert process.returncode == 0, stderr
        assert recorded(folder) == {"j0", "j1", "j2", "workers"}
    before, ended_before = recorded(folder), ends(folder)
    started = {
        each.job for each in event_log.read(folder / "ecoshare-runs/latest/events.jsonl") if isinstance(each, StartJob)
    }
    shown = json.loads(ecoshare("export", folder / "ecoshare-runs/latest").stdout)
    assert {job["name"] for job in shown["jobs"] if job["state"] == "completed"} <= before
    resumed = resume(folder / "ecoshare-runs/latest")
    assert resumed.code == 0, resumed.stderr
    assert {job["state"] for job in resumed.summary["jobs"]} == {"completed"}
    if victim == "controller":
        attempts = {job["name"]: job["attempts"] for job in resumed.summary["jobs"]}
        again = {name for name in started if name not in before}
        assert all(attempts[name] == (2 if name in again else 1) for name in attempts), (attempts, again)
    for name, count in ends(folder).items():
        assert count == ended_before[name] if name in before else count >= 1, f"{name} ran again though it had finished"
    assert not cleanup.members(token)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [0, 1, *(pytest.param(each, marks=pytest.mark.nightly) for each in range(2, ALL))])
def test_a_killed_controller_or_guard(tmp_path: Path, number: int) -> None:
    dice = random.Random(number)
    kill_and_resume(tmp_path, ["controller", "guard"][number % 2], dice.uniform(0, 1.8))


@pytest.mark.nightly
@pytest.mark.cold
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(COLD))
def test_a_killed_controller_or_guard_while_the_server_loads(tmp_path: Path, number: int) -> None:
    dice = random.Random(number)
    kill_and_resume(tmp_path, ["controller", "guard"][number % 2], dice.uniform(0, 4.5), cold=True)


@pytest.mark.nightly
@pytest.mark.cold
@pytest.mark.timeout(300)
def test_a_supervisor_that_is_killed_while_it_loads_is_replaced(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, "supervisor", 0.3, cold=True)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_supervisor_is_replaced_and_its_jobs_run_again(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, "supervisor", 1.2)


@pytest.mark.slow
@pytest.mark.cold
@pytest.mark.timeout(300)
@pytest.mark.parametrize("loads", [True, pytest.param(False, marks=SLOW)])
def test_a_controller_that_is_killed_before_torch_is_loaded_leaves_no_process(tmp_path: Path, loads: bool) -> None:
    process = start(tmp_path, cold=True)
    wait_for(lambda: "supervisor" in roles(process.pid, tmp_path))
    supervisor = roles(process.pid, tmp_path)["supervisor"]
    wait_for(lambda: not loads or b"libtorch_cpu" in Path(f"/proc/{supervisor}/maps").read_bytes())
    if "guard" in (found := roles(process.pid, tmp_path)):
        os.kill(found["guard"], signal.SIGKILL)
    process.kill()
    process.wait()
    # The server hears nothing while it loads, so only the kernel can end it. Loading takes seconds.
    gone(token_of(tmp_path), 1.0)


@pytest.mark.slow
@pytest.mark.cold
@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(each, marks=SLOW) for each in (signal.SIGTERM, signal.SIGHUP))]
)
def test_a_signal_before_the_first_job_ends_the_server(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path, cold=True)
    wait_for(lambda: "supervisor" in roles(process.pid, tmp_path))
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr, stderr
    assert not cleanup.members(token_of(tmp_path)), "the server outlives its controller"


@pytest.mark.nightly
def test_ctrl_c_twice_ends_a_run_without_answers_of_server_and_guard(tmp_path: Path) -> None:
    """Before, no number of Ctrl-C ended a run in which both were stopped (SIGSTOP)."""
    process = start(tmp_path)
    wait_for_jobs(tmp_path)
    for role in ("supervisor", "guard"):
        os.kill(roles(process.pid, tmp_path)[role], signal.SIGSTOP)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    _, stderr = process.communicate(timeout=40)
    assert process.returncode == 130 and "Traceback" not in stderr, stderr
    assert not cleanup.members(token_of(tmp_path))
    assert resume(tmp_path / "ecoshare-runs/latest").code == 0


@pytest.mark.slow
def test_guard_and_controller_both(tmp_path: Path) -> None:
    """The supervisor itself ends the jobs when both are gone."""
    process = start(tmp_path)
    wait_for_jobs(tmp_path)
    os.kill(roles(process.pid, tmp_path)["guard"], signal.SIGKILL)
    process.kill()
    process.wait()
    gone(token_of(tmp_path), 20.0)
    assert (tmp_path / "ecoshare-runs/latest/events.jsonl").exists()
    shared = cleanup.shared_path(token_of(tmp_path))
    (tmp_path / "other").mkdir()
    assert run(tmp_path / "other", slow_steps("a", 2)).code == 0
    assert not shared.exists(), "the next run removes what was left"


@pytest.mark.nightly
def test_a_controller_that_is_killed_before_its_jobs_start_leaves_no_folder(tmp_path: Path) -> None:
    for moment in range(rounds(3, nightly=16)):
        (folder := tmp_path / str(moment)).mkdir()
        process = start(folder)
        wait_for((folder / "ecoshare-runs/latest/environment.json").exists)
        shared = cleanup.shared_path(token_of(folder))
        wait_for(shared.exists)
        process.kill()
        process.wait()
        wait_for(partial(_is_gone, shared))


def _is_gone(path: Path) -> bool:
    return not path.exists()


@pytest.mark.nightly
def test_ctrl_c_before_the_run_is_opened_ends_it_and_it_can_be_resumed(tmp_path: Path) -> None:
    """Before, a run that was asked to stop before its first event ended with a traceback."""
    (script := tmp_path / "at_once.py").write_text(
        "from ecoshare.cli import main\n"
        "from ecoshare.runtime.nodes import run_host\n"
        "heard = run_host.LocalHost.heard\n"
        "run_host.LocalHost.heard = lambda self, stop: (stop(), heard(self, stop))[1]\n"
        "main()\n"
    )
    path = job_file(tmp_path, slow_steps("a", 3, 2))
    process = Started("run", path, "--device", "cpu", "--no-report", cwd=tmp_path, script=script)
    assert process.wait(60.0) == 130 and "Traceback" not in process.stderr, process.stderr
    folder = tmp_path / "ecoshare-runs/latest"
    assert isinstance(next(iter(event_log.read(folder / "events.jsonl"))), RunOpened)
    resumed = resume(folder)
    assert resumed.code == 0 and resumed.job("a")["state"] == "completed", resumed.stderr
