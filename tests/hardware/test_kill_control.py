"""kill -9 of the process that sets a GPU, or of its guard, at any moment: the GPU ends as it was before."""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.driver import COMPILER, FakeDriver, presets
from tests.driver.fake import Settings
from tests.hardware.claims import FOUND_W, limited

ROOT = Path(__file__).parents[2]
QUICK, ALL = 5, 200
BEFORE = Settings(FOUND_W, None, None, False)

pytestmark = pytest.mark.skipif(COMPILER is None, reason="the fake driver is written in C, and there is no compiler")


def start(driver: FakeDriver, folder: Path, seed: int) -> tuple[subprocess.Popen[str], int]:
    """The process, at work, and its guard."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.hardware.setter", driver.gpu(0).uuid, str(seed), str(folder)],
        cwd=ROOT,
        env={**os.environ, **driver.environment, "ECOSHARE_STATE": str(folder / "state")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    told = process.stdout.readline()
    assert told, process.communicate()
    guard = int(told)
    until_s = time.monotonic() + 20
    while driver.gpu(0).settings() == BEFORE:
        assert time.monotonic() < until_s and process.poll() is None, process.communicate()
    return process, guard


def wait_for_settings(driver: FakeDriver, within_s: float) -> float:
    """How long it took until everything was as before."""
    began_s = time.monotonic()
    while driver.gpu(0).settings() != BEFORE:
        assert time.monotonic() - began_s < within_s, driver.gpu(0).settings()
        time.sleep(0.002)
    return time.monotonic() - began_s


def kill_once(driver: FakeDriver, folder: Path, seed: int) -> float | None:
    """Kill one of the two at a random moment; how long the guard took, where it was its turn."""
    draw = random.Random(seed)
    process, guard = start(driver, folder, seed)
    time.sleep(draw.uniform(0.0, 0.4))
    if draw.random() < 0.7:
        os.kill(process.pid, signal.SIGKILL)
        took_s = wait_for_settings(driver, 5.0)
        process.communicate()
    else:
        os.kill(guard, signal.SIGKILL)
        time.sleep(draw.uniform(0.0, 0.1))
        _, stderr = process.communicate()  # closes its stdin, which tells it to end
        assert process.returncode == 0, stderr
        took_s = None
    until_s = time.monotonic() + 5.0
    while (journals := list((folder / "state").glob("*.json"))) and time.monotonic() < until_s:
        time.sleep(0.01)
    assert not journals and driver.gpu(0).settings() == BEFORE
    return took_s


def kill_often(folder: Path, seeds: range) -> None:
    driver = FakeDriver(folder, [presets.H200])
    with driver:
        limited(driver, FOUND_W)
    times_s = [took_s for seed in seeds if (took_s := kill_once(driver, folder, seed)) is not None]
    assert statistics.median(times_s) < 1.0, "the guard puts back within a second"


def test_whoever_is_killed_the_gpu_is_as_it_was(tmp_path: Path) -> None:
    kill_often(tmp_path, range(QUICK))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_whoever_is_killed_and_however_often(tmp_path: Path) -> None:
    kill_often(tmp_path, range(1000, 1000 + ALL))


def test_both_killed_at_once_leave_the_journal_to_the_next_start(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path, [presets.H200])
    with driver:
        limited(driver, FOUND_W)
    process, guard = start(driver, tmp_path, 7)
    os.kill(process.pid, signal.SIGSTOP)
    while driver.gpu(0).settings() == BEFORE:  # stopped between two rounds
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(0.005)
        os.kill(process.pid, signal.SIGSTOP)
    os.kill(guard, signal.SIGKILL)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert driver.gpu(0).settings() != BEFORE
    environment = {**os.environ, **driver.environment, "ECOSHARE_STATE": str(tmp_path / "state")}
    ecoshare = [sys.executable, "-m", "ecoshare"]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*ecoshare, *words], env=environment, capture_output=True, text=True, check=False)

    shown = run("devices")
    assert "a run that died has left settings here" in shown.stdout and "ecoshare restore" in shown.stdout
    done = run("restore")
    assert done.returncode == 0, done.stderr
    assert f"power_limit is {FOUND_W:g} W" in done.stdout or "gpu_clock is unlocked" in done.stdout
    assert driver.gpu(0).settings() == BEFORE
    assert "nothing to restore" in run("restore").stdout
