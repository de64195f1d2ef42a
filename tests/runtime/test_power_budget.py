"""Power budget of real runs: four fake GPUs with the real nvidia-ml-py and zeus, and partitions of the processors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest

from ecoshare.core.commands import AskPower, MeasureSetting
from ecoshare.core.events import JobExited, PowerPredicted, RunOpened
from ecoshare.devices.meter import BUSY_W_PER_CORE, IDLE_W_PER_CORE
from ecoshare.jobs.quantities import number
from ecoshare.record import event_log
from ecoshare.runtime.nodes.cleanup import TOKEN
from scripts.fuzz.processes import is_guard
from tests.devices.claims import limited
from tests.driver import FakeDriver, presets
from tests.driver.fake import SetterCall
from tests.driver.faults import Fault
from tests.driver.training import COMPUTES, SCRIPT, STREAMS
from tests.runtime.machine import MARKS
from tests.runtime.running import check, job_file, slow_steps, words
from tests.warm import Started, ecoshare, wait_for

FOUND_W, LEAST_W, BUDGET_W = 600.0, 200.0, 1500.0
GPUS = 4
PART = len(os.sched_getaffinity(0)) // 2
"""Cores of each of two partitions of this machine."""
IDLE_W, BUSY_W = IDLE_W_PER_CORE * PART, BUSY_W_PER_CORE * PART
JOBS = [COMPUTES.job(400, "--responds"), STREAMS.job(300, "--responds")]


@dataclass
class Four:
    """A folder with jobs, and four fake GPUs."""

    folder: Path
    driver: FakeDriver
    set_before: int = 0

    @property
    def environment(self) -> dict[str, str]:
        ours = {"ECOSHARE_STATE": str(self.folder / "state"), "ECOSHARE_SYSFS": str(self.folder / "sys")}
        environment = {**os.environ, **self.driver.environment, **ours}
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        return environment

    def line(self, *more: str, jobs: int = 6) -> list[str]:
        described = [{**JOBS[number % 2], "name": f"j{number}"} for number in range(jobs)]
        line = words(job_file(self.folder, *described), "--power-budget", f"{BUDGET_W:g} W", *more)
        return [word for word in line if word not in ("--device", "cpu")]

    def limits_w(self) -> list[float]:
        return [self.driver.gpu(number).settings().power_limit_w for number in range(GPUS)]

    def calls(self) -> list[SetterCall]:
        """Calls of the run that set a power limit."""
        calls = self.driver.setter_calls()[self.set_before :]
        return [each for each in calls if each.function.startswith("nvmlDeviceSetPowerManagementLimit")]

    def sums_w(self) -> list[tuple[float, int]]:
        """Sum of all limits after each call, and the process that made it."""
        limits_w = dict.fromkeys(range(GPUS), FOUND_W)
        sums = []
        for call in self.calls():
            assert call.result == 0
            limits_w[call.gpu] = call.values[0] / 1000
            sums.append((sum(limits_w.values()), call.pid))
        return sums

    def log(self) -> Path:
        return self.folder / "ecoshare-runs/latest/events.jsonl"

    def runs_within(self) -> bool:
        """Whether some packing has been measured, under limits within the budget."""
        return self.log().exists() and any(isinstance(each, PowerPredicted) for each in event_log.read(self.log()))


@pytest.fixture
def four(tmp_path: Path) -> Four:
    (tmp_path / "trains.py").write_text(SCRIPT)
    driver = FakeDriver(tmp_path, [presets.H200] * GPUS)
    with driver:
        for number in range(GPUS):
            limited(driver, FOUND_W, number)
    return Four(tmp_path, driver, len(driver.setter_calls()))


def within(sums: list[tuple[float, int]], controller: int) -> Iterator[float]:
    """Sums while the run went on: after its first sum within the budget, until something else than it sets a limit."""
    began = False
    for sum_w, pid in sums:
        if pid != controller:
            return
        began = began or sum_w <= BUDGET_W
        if began:
            yield sum_w


class TestOnGpus:
    pytestmark = MARKS

    @pytest.mark.nightly
    def test_the_limits_stay_within_the_budget_and_are_put_back(self, four: Four) -> None:
        options = "--objective", "makespan", "--profiles", str(four.folder / "profiles")
        process = Started(*four.line(*options), cwd=four.folder, environment=four.environment)
        done = process.done()
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout)
        assert {job["state"] for job in summary["jobs"]} == {"completed"}
        sums = four.sums_w()
        # The last calls put the limits back, after all jobs have ended.
        first_back = next(place for place in range(len(sums)) if len(sums) - place <= GPUS)
        under_way = list(within(sums[:first_back], sums[0][1]))
        assert under_way and max(under_way) <= BUDGET_W, sums
        assert four.limits_w() == [FOUND_W] * GPUS
        entries = list(event_log.read(four.log()))
        opened = next(each for each in entries if isinstance(each, RunOpened))
        assert opened.config.power_budget_w == BUDGET_W
        assert {each.power_limits_w[-1] for each in opened.devices} == {FOUND_W}
        assert any(isinstance(each, MeasureSetting) for each in entries)
        told = [each for each in entries if isinstance(each, AskPower) and each.measurements]
        assert told, "a packing was measured, and its response asked for"
        check(four.log().parent)
        again = ecoshare(*four.line(*options, jobs=2), environment=four.environment)
        assert again.returncode == 0, again.stderr
        first = [each for each in event_log.read(four.log()) if isinstance(each, AskPower)][:2]
        assert [bool(each.measurements) for each in first] == [True, True], "the first run has kept them"

    @pytest.mark.nightly
    def test_a_gpu_that_is_found_at_its_least_limit_keeps_it(self, four: Four) -> None:
        with four.driver:
            limited(four.driver, LEAST_W, 2)
        four.set_before = len(four.driver.setter_calls())
        process = Started(*four.line("--objective", "makespan"), cwd=four.folder, environment=four.environment)
        done = process.done()
        assert done.returncode == 0, done.stderr
        assert {job["state"] for job in json.loads(done.stdout)["jobs"]} == {"completed"}
        assert {call.gpu for call in four.calls()} == {0, 1, 3}
        assert four.limits_w() == [FOUND_W, FOUND_W, LEAST_W, FOUND_W]
        opened = next(each for each in event_log.read(four.log()) if isinstance(each, RunOpened))
        assert [each.power_limits_w for each in opened.devices][2] == (LEAST_W,)
        check(four.log().parent)

    def test_a_device_that_cannot_be_limited_starts_no_job(self, four: Four) -> None:
        four.driver.gpu(2).fault(Fault.NO_PERMISSION, functions="nvmlDeviceSetPowerManagementLimit*")
        line = ["1000 W" if word == f"{BUDGET_W:g} W" else word for word in four.line()]
        done = ecoshare(*line, environment=four.environment)
        assert done.returncode == 1, done.stderr
        jobs = json.loads(done.stdout)["jobs"]
        assert {job["state"] for job in jobs} == {"failed"} and {job["attempts"] for job in jobs} == {0}
        assert {"the power budget of 1000 W cannot be kept: cuda:2" in job["error"] for job in jobs} == {True}
        four.driver.mend()
        assert four.limits_w() == [FOUND_W] * GPUS

    @pytest.mark.parametrize("kills_guard", [False, True], ids=["controller", "controller and guard"])
    def test_a_killed_run_leaves_the_limits_as_they_were(self, four: Four, kills_guard: bool) -> None:
        process = Started(*four.line(jobs=8), cwd=four.folder, environment=four.environment)
        wait_for(four.runs_within, 120)
        if kills_guard:
            for pid in _guards(process.pid):
                os.kill(pid, signal.SIGKILL)
        os.kill(process.pid, signal.SIGKILL)
        process.done()
        if kills_guard:
            done = ecoshare("restore", environment=four.environment)
            assert done.returncode == 0, done.stderr
        wait_for(lambda: four.limits_w() == [FOUND_W] * GPUS)
        under_way = list(within(four.sums_w(), four.sums_w()[0][1]))
        assert under_way and max(under_way) <= BUDGET_W

    @pytest.mark.nightly
    def test_a_run_after_one_that_died_with_its_guard_begins_at_the_limits_before_both(self, four: Four) -> None:
        """Idle devices were left at their least limit, where nothing seems to be left to choose."""
        line = [
            "1000 W" if word == f"{BUDGET_W:g} W" else word for word in four.line("--objective", "makespan", jobs=1)
        ]
        process = Started(*line, cwd=four.folder, environment=four.environment)
        wait_for(lambda: four.limits_w().count(LEAST_W) == GPUS - 1, 120)
        for pid in (*_guards(process.pid), process.pid):
            os.kill(pid, signal.SIGKILL)
        process.done()
        assert LEAST_W in four.limits_w()
        made = sorted((four.folder / "ecoshare-runs").iterdir())[0]
        token = json.loads((made / "environment.json").read_text())["token"]
        limits = len(four.calls())
        ended_s = Queue[float]()
        # It stands for a job that outlives both.
        left = subprocess.Popen(["sleep", "100"], env={**os.environ, TOKEN: token})

        def note_its_end() -> None:
            left.wait()
            ended_s.put(time.clock_gettime(time.CLOCK_MONOTONIC))

        Thread(target=note_its_end).start()
        done = ecoshare(*line, environment=four.environment)
        assert ended_s.get(timeout=10) <= four.calls()[limits].at_s, (
            "its processes ended before its limits were restored"
        )
        assert done.returncode == 0, done.stderr
        assert four.limits_w() == [FOUND_W] * GPUS

    @pytest.mark.parametrize(
        ("budget", "more", "code", "said"),
        [
            ("700 W", (), 4, "--power-budget 700 W: the least power limits are 800 W on 4 devices, 200 W each"),
            ("900 W", ("--control", "off"), 2, "--power-budget sets power limits, and --control off sets nothing"),
            ("9 W", ("--power-budget-by", "placement"), 4, "--power-budget 9 W: the idle devices draw"),
            ("1 kW", ("--power-budget-by", "clocks"), 2, "--power-budget-by clocks: expected limits or placement"),
        ],
    )
    def test_a_budget_that_cannot_be_kept_starts_nothing(
        self, four: Four, budget: str, more: tuple[str, ...], code: int, said: str
    ) -> None:
        line = [budget if word == f"{BUDGET_W:g} W" else word for word in four.line(*more)]
        done = ecoshare(*line, environment=four.environment)
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr
        assert not (four.folder / "ecoshare-runs").exists() and not four.calls()


def _guards(controller: int) -> list[int]:
    children = Path(f"/proc/{controller}/task/{controller}/children").read_text().split()
    return [int(pid) for pid in children if is_guard(int(pid))]


@pytest.mark.parametrize(
    ("budget", "more", "code", "said"),
    [
        ("0 W", (), 2, "--power-budget 0 W: expected a power above 0, got '0 W'"),
        (f"{2 * IDLE_W + 0.1:g} W", ("--power-budget-by", "placement"), 3, "jobs[0].script: the devices would draw"),
        ("12 horses", (), 2, "--power-budget 12 horses: expected a power such as '1200 W'"),
        ("50 W", (), 4, "--power-budget: the power limit of cpu:0 cannot be set for a run"),
        (
            "0.1 W",
            ("--power-budget-by", "placement"),
            4,
            f"--power-budget 0.1 W: the idle devices draw {number(2 * IDLE_W)} W on 2 devices",
        ),
    ],
)
def test_what_processors_cannot_keep_is_refused(
    tmp_path: Path, budget: str, more: tuple[str, ...], code: int, said: str
) -> None:
    path = job_file(tmp_path, slow_steps("a", 1))
    done = ecoshare(*_on_partitions(path, "--power-budget", budget, *more))
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert not (tmp_path / "ecoshare-runs").exists()


@pytest.mark.nightly
def test_a_budget_by_placement_lets_a_partition_rest_where_both_would_draw_more(tmp_path: Path) -> None:
    """The budget is enough for one of two partitions at a time."""
    path = job_file(tmp_path, slow_steps("a", 20), slow_steps("b", 20))
    budget_w = IDLE_W + 1.2 * BUSY_W
    line = _on_partitions(path, "--power-budget", f"{budget_w:g} W", "--power-budget-by", "placement")
    done = ecoshare(*line)
    assert done.returncode == 0, done.stderr
    log = tmp_path / "ecoshare-runs/latest/events.jsonl"
    jobs = json.loads(done.stdout)["jobs"]
    assert [job["devices"] for job in jobs] == [["cpu:0"]] * 2, "they take turns, while the other partition rests"
    assert sum(isinstance(each, JobExited) for each in event_log.read(log)) == 2
    check(log.parent)


def test_a_way_to_keep_no_budget_is_refused(tmp_path: Path) -> None:
    line = words(job_file(tmp_path, slow_steps("a", 1)), "--power-budget-by", "placement")
    done = ecoshare(*line)
    assert (done.returncode, "give it with --power-budget" in done.stderr) == (2, True), done.stderr


def _on_partitions(path: Path, *more: str) -> list[str]:
    line = words(path, *more)
    line[line.index("cpu")] = "cpu/2"
    return line
