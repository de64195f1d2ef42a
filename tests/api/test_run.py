"""`ecoshare.run` in a program: real jobs, and a process that goes on as it was before."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import ecoshare
from ecoshare.core.commands import Command
from ecoshare.core.events import Event
from ecoshare.devices.control.state_folder import StateFolder
from ecoshare.devices.occupancy import Occupancy
from ecoshare.devices.processor_load import ProcessorTimes
from ecoshare.devices.registry import find
from ecoshare.errors import Interrupted, JobFailed, LimitNotMet, UsageError
from ecoshare.record.run_view import RunView
from ecoshare.runtime.nodes import run_host
from tests.runtime.running import SCRIPTS, check, slow_steps
from tests.warm import ecoshare as command
from tests.warm import spawned

NO_TORCH = SCRIPTS / "no_torch.py"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ecoshare.RunResult]:
    """`ecoshare.run` on the processors, in turns, with lane servers that have loaded torch."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_host, "Spawned", spawned)

    def start(jobs: Any, **fields: Any) -> ecoshare.RunResult:
        return ecoshare.run(jobs, **{"device": "cpu", "policy": "fair", "use_profiles": False, **fields})

    return start


@pytest.fixture(autouse=True)
def _same_signals() -> Iterator[None]:
    """If it failed, a program could no longer be stopped after its first run, or would not clean up."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert [signal.getsignal(number) for number in numbers] == before


class StopsItself:
    """Display that sends this process a signal when a job has done an iteration."""

    def __init__(self, number: int) -> None:
        self.number, self.closed = number, False

    def event(self, event: Event, commands: list[Command]) -> None:
        """Do nothing."""

    def is_due(self, at_s: float) -> bool:
        """Always."""
        return True

    def show(self, view: RunView) -> None:
        """Send the signal, once."""
        if self.number and any(job.iterations for job in view.jobs):
            os.kill(os.getpid(), self.number)
            self.number = 0

    def close(self) -> None:
        """Note that the run is over."""
        self.closed = True


@pytest.mark.slow
def test_a_run_gives_what_its_command_prints(
    run: Callable[..., ecoshare.RunResult], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "jobs.yaml").write_text(json.dumps({"version": 1, "jobs": [slow_steps("a", 5), slow_steps("b", 5)]}))
    result = run("jobs.yaml", runs="runs")
    assert capfd.readouterr() == ("", ""), "a program's terminal is its own"
    result.check()
    check(result.folder)
    assert (result.state, result.ran, result.unrestored) == ("completed", True, ())
    assert [(job.name, job.state, job.iterations, job.exit_code) for job in result.jobs] == [
        ("a", "completed", 5, 0),
        ("b", "completed", 5, 0),
    ]
    assert result.job("a").completed and (result.folder_of("a") / "stdout.log").exists()
    with pytest.raises(KeyError):
        result.job("c")
    assert result.energy_j and result.makespan_s
    shared_j = sum(job.energy_j or 0.0 for job in result.jobs)
    assert shared_j + (result.summary.idle_energy_j or 0.0) == pytest.approx(result.energy_j)
    exported = command("export", result.folder, cwd=tmp_path).stdout
    assert json.loads(exported) == json.loads((result.folder / "summary.json").read_text())
    assert json.loads(exported) == json.loads(json.dumps(result.summary.as_dict()))
    line = ("run", "jobs.yaml", "--device", "cpu", "--policy", "fair", "--no-profiles", "--no-report", "--json")
    printed = json.loads(command(*line, cwd=tmp_path).stdout)
    assert printed.keys() == result.summary.as_dict().keys()
    assert printed["jobs"][0].keys() == result.summary.as_dict()["jobs"][0].keys()


def test_a_failed_job_is_part_of_the_result(run: Callable[..., ecoshare.RunResult], tmp_path: Path) -> None:
    """If it were an exception, the other jobs' results would be lost."""
    (tmp_path / "fails.py").write_text("import sys; sys.exit('no data')")
    result = run(["fails.py", NO_TORCH])
    failed, good = result.jobs
    assert (failed.state, failed.exit_code, good.state, result.state) == ("failed", 1, "completed", "failed")
    with pytest.raises(JobFailed, match="1 of 2 jobs did not complete: fails") as raised:
        result.check()
    assert "fails/stderr.log" in raised.value.hint


@pytest.mark.slow
def test_a_broken_limit_is_told_by_the_check(run: Callable[..., ecoshare.RunResult]) -> None:
    jobs = [slow_steps("a", 40, slowdown=1.0), slow_steps("b", 40)]
    result = run({"version": 1, "jobs": jobs})
    job = result.job("a")
    assert job.slowdown is not None and job.slowdown > 1.0 and job.slowdown_limit == 1.0
    assert job.slowdown_limit_met is False and result.job("b").slowdown_limit_met is None
    with pytest.raises(LimitNotMet, match="`slowdown:` limit: a"):
        result.check()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_a_signal_stops_the_run_and_reaches_the_program(
    run: Callable[..., ecoshare.RunResult], number: int, tmp_path: Path
) -> None:
    """If it failed, Ctrl-C would leave jobs behind, or a program that was told to end would go on."""
    heard: list[int] = []
    shown = StopsItself(number)
    before = signal.signal(number, lambda number, _frame: heard.append(number))
    try:
        result = run({"version": 1, "jobs": [slow_steps("a", 100_000)]}, progress=lambda: shown)
    finally:
        signal.signal(number, before)
    assert heard == [number] and shown.closed
    assert (result.state, result.job("a").state) == ("interrupted", "cancelled")
    with pytest.raises(Interrupted, match="the run was stopped"):
        result.check()


@pytest.mark.slow
def test_ctrl_c_is_a_keyboard_interrupt_and_the_run_can_be_resumed(
    run: Callable[..., ecoshare.RunResult], tmp_path: Path
) -> None:
    (tmp_path / "long.py").write_text((SCRIPTS / "slow_steps.py").read_text())
    jobs = {"version": 1, "jobs": [{"name": "a", "script": "long.py", "args": ["--steps", "100000"]}]}
    with pytest.raises(KeyboardInterrupt):
        run(jobs, progress=lambda: StopsItself(signal.SIGINT))
    (tmp_path / "long.py").write_text("print('again')")
    os.chdir("/")  # relative paths are those of the folder that the run was started in
    result = ecoshare.resume(tmp_path / "ecoshare-runs/latest")
    assert result.ran and result.state == "completed"
    assert (result.job("a").attempts, (result.folder_of("a") / "stdout.log").read_text()[-6:]) == (2, "again\n")
    again = ecoshare.resume(ecoshare.ResumeRequest(run=result.folder))
    assert not again.ran and again.state == "completed"


def test_a_value_with_secrets_cannot_be_resumed(run: Callable[..., ecoshare.RunResult]) -> None:
    """The run folder has no secrets: the jobs would get asterisks in their environment."""
    jobs = {"version": 1, "jobs": [slow_steps("a", 100_000, env={"TOKEN": "hunter2"})]}
    with pytest.raises(KeyboardInterrupt):
        run(jobs, progress=lambda: StopsItself(signal.SIGINT))
    folder = Path("ecoshare-runs/latest")
    assert "hunter2" not in (folder / "jobs.yaml").read_text()
    with pytest.raises(UsageError, match="no values of `env:`"):
        ecoshare.resume(folder)


@pytest.mark.slow
def test_another_thread_can_run_jobs(run: Callable[..., ecoshare.RunResult], tmp_path: Path) -> None:
    """Only the main thread may handle signals. The report is drawn there, too."""
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(run(NO_TORCH))
            found.append(found[0].draw_report(found.append))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    result, report = found
    assert result.state == "completed" and report == result.folder / "report.html" and report.exists()


def test_a_notebook_whose_loop_runs_can_run_jobs(run: Callable[..., ecoshare.RunResult]) -> None:
    """Asyncio runs no second loop in a thread."""

    async def cell() -> ecoshare.RunResult:
        return run(NO_TORCH)

    assert asyncio.run(cell()).state == "completed"


@pytest.mark.slow
def test_ctrl_c_beside_a_loop_stops_the_run(run: Callable[..., ecoshare.RunResult]) -> None:
    """The handler of `asyncio.run` cancels the caller's task, which then raises KeyboardInterrupt."""

    async def cell() -> None:
        run({"version": 1, "jobs": [slow_steps("a", 100_000)]}, progress=lambda: StopsItself(signal.SIGINT))
        await asyncio.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(cell())
    summary = json.loads(Path("ecoshare-runs/latest/summary.json").read_text())
    assert summary["state"] == "interrupted"


@pytest.mark.nightly
def test_the_load_of_a_run_that_was_waited_for_is_not_told_as_that_of_other_programs(
    run: Callable[..., ecoshare.RunResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run that waits would otherwise call a machine busy that is idle by then."""
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    first, ended_s, told = Occupancy((find("cpu"),), StateFolder.of_this_user()), [math.inf], list[str]()

    def times(_processors: Sequence[int] = ()) -> ProcessorTimes:
        now_s = time.monotonic()
        busy_s = min(now_s, ended_s[0])
        return ProcessorTimes(2.0 * busy_s, 2.0 * (now_s - busy_s), 2)

    def end() -> None:
        ended_s[0] = time.monotonic()
        first.end()

    def note(line: str) -> None:
        told.append(line)
        if line.startswith("waits for "):
            threading.Timer(1.0, end).start()

    monkeypatch.setattr(ProcessorTimes, "now", times)
    assert run([NO_TORCH], wait=True, note=note).state == "completed"
    assert told[0].startswith("waits for ") and not [line for line in told if "other programs" in line]


@pytest.mark.slow
def test_two_runs_follow_each_other(run: Callable[..., ecoshare.RunResult]) -> None:
    """If it failed, the first would keep the device, or leave its folder in memory."""
    first, second = run(NO_TORCH), run([NO_TORCH], runs=Path("other"))
    assert first.folder != second.folder and first.state == second.state == "completed"
