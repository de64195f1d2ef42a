"""A GPU that fails in the middle of a run of real processes: its jobs complete on the other one."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.attempt import Outcome
from ecoshare.core.events import DeviceFailed, JobExited
from ecoshare.record import event_log
from ecoshare.runtime.nodes import cleanup
from tests.driver import COMPILER, FakeDriver, Fault, presets
from tests.driver.training import COMPUTES, SCRIPT
from tests.runtime.running import Finished, job_file, words
from tests.warm import Started, ecoshare, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None, reason="the fake driver is compiled, and there is no C compiler"),
]

TRAINS = f"""
import os
from pathlib import Path
import torch
torch.manual_seed(0)
{SCRIPT}
    if os.environ["CUDA_VISIBLE_DEVICES"] == Path("lost").read_text() and "dies" in os.environ:
        raise RuntimeError("CUDA error: unspecified launch failure")
print(loss.item().hex())
"""
"""Training that ends with an error in the environment of the GPU that is lost, if it is told so."""

STEPS = 90


@dataclass
class Lost:
    """Run in which a GPU failed.

    Attributes:
        driver: The driver, still without the GPU.
        uuid: UUID of the GPU.
    """

    done: Finished
    driver: FakeDriver
    uuid: str

    @property
    def entries(self) -> list[Any]:
        """Entries of its log."""
        return list(event_log.read(self.done.folder / "events.jsonl"))


def environment(driver: FakeDriver) -> dict[str, str]:
    found = {**os.environ, **driver.environment}
    found.pop("CUDA_VISIBLE_DEVICES", None)
    return found


def training(name: str, **keys: Any) -> dict[str, Any]:
    return {**COMPUTES.job(STEPS), "name": name, **keys}


def run_with_failure(
    folder: Path, *jobs: dict[str, Any], fails: Callable[[FakeDriver], None], devices: int = 2, options: Any = ()
) -> Lost:
    """Run jobs on so many GPUs, the last of which fails when all are at work."""
    (folder / "trains.py").write_text(TRAINS)
    (folder / "lost").write_text("none")
    driver = FakeDriver(folder, [presets.H200] * devices)
    path = job_file(folder, *jobs)
    line = [word for word in words(path, "--control", "off", *options) if word not in ("--device", "cpu")]
    process = Started(*line, environment=environment(driver), loads=True)
    run = folder / "ecoshare-runs" / "latest"
    wait_for(lambda: _at_work(run) >= devices)
    fails(driver)
    (folder / "lost").write_text(driver.gpu(devices - 1).uuid)
    stdout, stderr = process.communicate()
    assert process.returncode is not None
    done = Finished(process.returncode, stdout, stderr, run)
    return Lost(done, driver, driver.gpu(devices - 1).uuid)


def _at_work(run: Path) -> int:
    """Number of attempts that have done an iteration."""
    if not (run / "samples.jsonl").exists():
        return 0
    lines = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    return len({key for line in lines for key, job in (line.get("jobs") or {}).items() if job[2]})


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Lost:
    """Three jobs on two GPUs; the second one is lost, and a job on it notices before ecoshare does."""
    jobs = [training("a"), training("b", env={"dies": "1"}), training("c")]
    folder = tmp_path_factory.mktemp("lost")
    return run_with_failure(folder, *jobs, fails=lambda driver: driver.gpu(1).fault(Fault.GPU_LOST))


def test_the_jobs_of_a_lost_gpu_complete_on_the_other(lost: Lost) -> None:
    done = lost.done
    assert done.code == 0, done.stderr
    assert {job["state"] for job in done.summary["jobs"]} == {"completed"}
    assert all(job["devices"] == ["cuda:0"] for job in done.summary["jobs"])
    assert len({done.log(name).split()[-1] for name in "abc"}) == 1, "the loss of one training, three times"
    [failed] = [each for each in lost.entries if isinstance(each, DeviceFailed)]
    assert (failed.device, failed.reason) == ("cuda:1", "the driver says: GPU is lost")


def test_the_core_hears_of_the_gpu_before_the_jobs_that_failed_with_it(lost: Lost) -> None:
    events = [each for each in lost.entries if isinstance(each, DeviceFailed | JobExited)]
    first = next(place for place, each in enumerate(events) if isinstance(each, DeviceFailed))
    ends = [each for each in events if isinstance(each, JobExited) and each.outcome is not Outcome.COMPLETED]
    assert {each.outcome for each in ends} == {Outcome.DEVICE_FAILED}
    assert all(events.index(each) > first for each in ends)
    assert {each.job for each in ends} >= {"b"} and "cuda:1 failed" in ends[0].reason


def test_its_joules_end_with_it(lost: Lost) -> None:
    first, second = lost.done.summary["devices"]
    assert first["energy"]["covered"] == 1.0 and not first["failed"]
    assert 0.0 < second["energy"]["covered"] < 1.0 and second["energy"]["value_j"] > 0.0
    assert "the device failed: the driver says: GPU is lost" in second["energy"]["faults"]
    assert second["failed"]["reason"] == "the driver says: GPU is lost"


def test_a_log_with_a_failure_replays(lost: Lost) -> None:
    for event, logged, now in event_log.replay(iter(lost.entries)):
        assert logged == now, event


def test_nothing_is_left_of_the_run(lost: Lost) -> None:
    token = json.loads((lost.done.folder / "environment.json").read_text())["token"]
    assert not cleanup.members(token)
    assert not Path(json.loads((lost.done.folder / "environment.json").read_text())["shared"]).exists()


def test_it_is_told(lost: Lost) -> None:
    assert "cuda:1 failed" in lost.done.stderr
    shown = ecoshare("explain", lost.done.folder).stdout
    assert "cuda:1 failed" in shown and "cuda:0" in shown
    one = ecoshare("explain", lost.done.folder, "b").stdout
    assert "cuda:1 failed" in one and "was started again on cuda:0" in one
    said = json.loads(ecoshare("explain", lost.done.folder, "--json").stdout)["failures"]
    assert said["cuda:1"]["reason"] == "the driver says: GPU is lost"
    for form in ("html", "perfetto"):
        done = ecoshare("export", lost.done.folder, "--format", form, "--output", lost.done.folder / form)
        assert done.returncode == 0, done.stderr
        assert b"GPU is lost" in (lost.done.folder / form).read_bytes()


@pytest.mark.nightly
def test_without_a_gpu_the_run_fails_and_is_resumed_when_the_gpu_is_back(tmp_path: Path) -> None:
    done = run_with_failure(
        tmp_path, training("a"), training("b"), fails=lambda driver: driver.gpu(0).ecc_errors(2), devices=1
    )
    assert done.done.code == 1, done.done.stderr
    assert [job["state"] for job in done.done.summary["jobs"]] == ["failed", "failed"]
    errors = [job["error"] for job in done.done.summary["jobs"]]
    assert all("cuda:0 failed: 2 uncorrected memory errors (ECC)" in error for error in errors), errors
    assert "--resume" in done.done.stderr
    again = ecoshare("run", "--resume", done.done.folder, "--json", environment=environment(done.driver))
    assert again.returncode == 0, again.stderr
    assert {job["state"] for job in json.loads(again.stdout)["jobs"]} == {"completed"}


@pytest.mark.nightly
def test_a_run_without_its_lost_gpu_is_resumed_on_the_other(tmp_path: Path) -> None:
    """The first GPU is lost, so the driver counts the other one anew: it is known by its UUID."""
    jobs = [training(name) for name in "abcd"]
    (tmp_path / "trains.py").write_text(TRAINS)
    (tmp_path / "lost").write_text("none")
    driver = FakeDriver(tmp_path, [presets.H200, presets.H200])
    line = [word for word in words(job_file(tmp_path, *jobs), "--control", "off") if word not in ("--device", "cpu")]
    process = Started(*line, environment=environment(driver), loads=True)
    run = tmp_path / "ecoshare-runs" / "latest"
    wait_for(lambda: _at_work(run) >= 2)
    driver.gpu(0).fault(Fault.GPU_LOST)
    wait_for(lambda: any(isinstance(each, DeviceFailed) for each in event_log.read(run / "events.jsonl")))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    again = ecoshare("run", "--resume", run, "--json", environment=environment(driver))
    assert again.returncode == 0, again.stderr
    summary = json.loads(again.stdout)
    assert {job["state"] for job in summary["jobs"]} == {"completed"}
    assert [device["name"] for device in summary["devices"]] == ["cuda:0", "cuda:1"]
    assert [device["failed"] is not None for device in summary["devices"]] == [True, False]
    assert {device for job in summary["jobs"] for device in job["devices"]} == {"cuda:1"}
