"""A queue without a device that works comes to its end, and says so as a run does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.driver import COMPILER, FakeDriver, presets
from tests.queue.queues import Served, answers
from tests.warm import Started, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None, reason="the fake driver is compiled, and there is no C compiler"),
]

WAITS_LONG = "import time\nprint('begun', flush=True)\ntime.sleep(600)\n"


@pytest.mark.nightly
def test_a_queue_without_a_device_ends_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it failed, a supervisor of the queue would take the end for a wanted one, and not open it again."""
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("ECOSHARE_QUEUE", raising=False)
    driver = FakeDriver(tmp_path, [presets.H200])
    environment = {**os.environ, **driver.environment}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    words = ("up", "--name", "test", "--no-profiles", "--policy", "fair", "--control", "off")
    process = Started(*words, cwd=tmp_path, environment=environment, loads=True)
    wait_for(lambda: answers() or process.poll() is not None, otherwise=lambda: process.stderr)
    up = Served(tmp_path, process)
    (tmp_path / "waits.py").write_text(WAITS_LONG)
    up.lines("submit", "waits.py")
    up.begun("waits")
    driver.gpu(0).ecc_errors(2)
    assert process.wait(60) == 1, process.stderr
    error, hint = " ".join(process.stderr.split()).split("error: ")[-1].split(" hint: ")
    assert error == "the queue 'test' has no device left: cuda:0 failed: 2 uncorrected memory errors (ECC)"
    assert hint == "`ecoshare up --resume --queue test` goes on with its jobs on the devices that work"
    again = Started(*words, "--resume", cwd=tmp_path, environment=environment, loads=True)
    wait_for(lambda: answers() or again.poll() is not None, otherwise=lambda: again.stderr)
    wait_for(lambda: up.queue.job("waits").attempts == 2)
    up.lines("down", "--now")
    assert again.wait(30) == 0, "the failure of an earlier session is none of this one"
