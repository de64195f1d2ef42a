"""Folder with jobs, and a fake GPU with free settings, as on the user's own machine."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ecoshare.core.commands import ApplySetting
from ecoshare.core.events import Done
from ecoshare.record import event_log
from tests.devices.claims import FOUND_W, limited
from tests.driver import COMPILER, FakeDriver, presets
from tests.driver.fake import Settings
from tests.driver.training import SCRIPT, STREAMS, Training
from tests.runtime.running import check
from tests.warm import Started, wait_for


def may_set() -> bool:
    """Whether this process may set a GPU."""
    from zeus.device.common import has_sys_admin

    return bool(has_sys_admin())


MARKS = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(COMPILER is None, reason="the fake driver is written in C, and there is no compiler"),
    pytest.mark.skipif(not may_set(), reason="setting a GPU takes CAP_SYS_ADMIN, as on a real one"),
]
"""Marks of tests that set a GPU: they need a compiler and the right to set."""

BEFORE = Settings(FOUND_W, None, None, False)


class Machine:
    """Folder with a training script, and a fake GPU to run it on."""

    def __init__(self, folder: Path, preset: presets.Preset = presets.H200) -> None:
        self.folder = folder
        (folder / "trains.py").write_text(SCRIPT)
        self.driver = FakeDriver(folder, [preset])
        with self.driver:
            limited(self.driver, FOUND_W)
        self.set_before = len(self.driver.setter_calls())

    def jobs(self, *trainings: Training, steps: int = 100_000, until: Path | None = None) -> Path:
        """Write a job file of trainings that end after these steps, or when the file `until` exists."""
        path = self.folder / "jobs.yaml"
        ends = () if until is None else ("--until", str(until))
        jobs = [training.job(steps, "--responds", *ends) for training in trainings]
        path.write_text(yaml.safe_dump({"version": 1, "jobs": jobs}))
        return path

    @property
    def environment(self) -> dict[str, str]:
        """Environment of commands on this machine. It has processors of its own: no test sets those of the host."""
        state, sysfs = str(self.folder / "state"), str(self.folder / "sys")
        return {**os.environ, **self.driver.environment, "ECOSHARE_STATE": state, "ECOSHARE_SYSFS": sysfs}

    def start(self, *words: str, cold: bool = False) -> Started:
        where = [] if "--resume" in words else ["--profiles", "profiles", "--device", "cuda:0"]
        return Started(words[0], *where, *words[1:], cwd=self.folder, environment=self.environment, cold=cold)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = self.start(*words).done()
        if words[0] == "run" and done.returncode == 0:
            check(self.folder / "ecoshare-runs/latest")
        return done

    def entries(self) -> list[Any]:
        return list(event_log.read(self.folder / "ecoshare-runs/latest/events.jsonl"))

    def set_since(self) -> list[str]:
        return [call.function for call in self.driver.setter_calls()[self.set_before :]]

    def kill_in_a_trial(self) -> Started:
        """The process of a `tune`, killed while its first setting is tried."""
        process = self.start("tune", "trains.py", "--", *STREAMS.args(100_000), "--responds")
        wait_for(lambda: self.trial_begins(1), 120)
        os.kill(process.pid, signal.SIGKILL)
        return process

    def trial_begins(self, number: int) -> bool:
        """Whether a setting other than the default was applied this many times in the run."""
        if not (self.folder / "ecoshare-runs/latest/events.jsonl").exists():
            return False
        entries = self.entries()
        done = {each.command for each in entries if isinstance(each, Done)}
        return sum(isinstance(each, ApplySetting) and each.id in done for each in entries) >= number
