"""After `kill -9` of the process that sets a GPU, or of its guard, at any moment, the GPU is as it was before."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.devices.claims import FOUND_W, limited
from tests.driver import COMPILER, FakeDriver, presets
from tests.driver.fake import Settings
from tests.rounds import rounds
from tests.warm import ROOT, Started, ecoshare, wait_for

QUICK, ALL = 1, rounds(12, nightly=60)
THEIRS = (presets.COMPUTE, presets.HIGH)
"""Power profiles that other programs have requested."""
BEFORE = Settings(FOUND_W, None, None, False, THEIRS)

pytestmark = pytest.mark.skipif(COMPILER is None, reason="the fake driver is written in C, and there is no compiler")


@dataclass
class Setter:
    """Process that sets the GPU until `end` closes its input, and its guard."""

    process: Started
    guard: int
    _input: int

    @classmethod
    def start(cls, driver: FakeDriver, folder: Path, seed: int) -> Setter:
        environment = {**os.environ, **driver.environment, "ECOSHARE_STATE": str(folder / "state")}
        theirs, ours = os.pipe()
        process = Started(
            driver.gpu(0).uuid,
            str(seed),
            folder,
            script=ROOT / "tests" / "devices" / "setter.py",
            cwd=ROOT,
            environment=environment,
            stdin=theirs,
        )
        os.close(theirs)
        wait_for(lambda: "\n" in process.stdout or process.poll() is not None)
        wait_for(lambda: driver.gpu(0).settings() != BEFORE or process.poll() is not None)
        assert process.poll() is None, process.stderr
        return cls(process, int(process.stdout.splitlines()[0]), ours)

    def end(self) -> None:
        os.close(self._input)
        self.process.wait()


def kill_once(driver: FakeDriver, folder: Path, seed: int) -> None:
    """Kill the process or its guard at a random moment."""
    draw = random.Random(seed)
    setter = Setter.start(driver, folder, seed)
    time.sleep(draw.uniform(0.0, 0.4))
    if draw.random() < 0.7:
        setter.process.kill()
        wait_for(lambda: driver.gpu(0).settings() == BEFORE, 20.0, lambda: driver.gpu(0).settings())
        setter.end()
    else:
        os.kill(setter.guard, signal.SIGKILL)
        time.sleep(draw.uniform(0.0, 0.1))
        setter.end()
        assert setter.process.returncode == 0, setter.process.stderr
    wait_for(lambda: not list((folder / "state").glob("*.json")))
    assert driver.gpu(0).settings() == BEFORE


def found(folder: Path) -> FakeDriver:
    """Driver of a GPU with every kind of knob, and with settings of an administrator."""
    driver = FakeDriver(folder, [presets.B200])
    driver.gpu(0).request_profiles(*THEIRS)
    with driver:
        limited(driver, FOUND_W)
    return driver


def kill_often(folder: Path, seeds: range) -> None:
    driver = found(folder)
    for seed in seeds:
        kill_once(driver, folder, seed)


@pytest.mark.slow
def test_the_gpu_is_as_before_after_any_kill(tmp_path: Path) -> None:
    kill_often(tmp_path, range(QUICK))


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_gpu_is_as_before_after_many_kills(tmp_path: Path) -> None:
    kill_often(tmp_path, range(1000, 1000 + ALL))


@pytest.mark.slow
def test_both_killed_at_once_leave_the_journal_to_the_next_start(tmp_path: Path) -> None:
    driver = found(tmp_path)
    setter = Setter.start(driver, tmp_path, 7)
    setter.process.send_signal(signal.SIGSTOP)
    while driver.gpu(0).settings() == BEFORE:  # stopped between two rounds
        setter.process.send_signal(signal.SIGCONT)
        time.sleep(0.005)
        setter.process.send_signal(signal.SIGSTOP)
    os.kill(setter.guard, signal.SIGKILL)
    setter.process.kill()
    setter.end()
    assert driver.gpu(0).settings() != BEFORE
    environment = {**os.environ, **driver.environment, "ECOSHARE_STATE": str(tmp_path / "state")}
    shown = ecoshare("devices", environment=environment)
    assert "a run that died has left settings here" in shown.stdout and "ecoshare restore" in shown.stdout
    done = ecoshare("restore", environment=environment)
    assert done.returncode == 0, done.stderr
    words = (f"power_limit is {FOUND_W:g} W", "gpu_clock is unlocked", "power_profile is compute and profile_40")
    assert any(each in done.stdout for each in words)
    assert driver.gpu(0).settings() == BEFORE
    assert "nothing to restore" in ecoshare("restore", environment=environment).stdout
