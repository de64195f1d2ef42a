"""Runs of real command lines on fake GPUs, with their results."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ecoshare.devices.nvidia import nvml
from ecoshare.knowledge.profile import Profile
from ecoshare.record import run_data
from ecoshare.record.accounts.energy_account import EnergyInterval
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.samples import Line, Sample, read
from tests.driver import FakeDriver, presets
from tests.driver.training import SCRIPT, Training
from tests.runtime.running import Finished, job_file, words
from tests.warm import Started, ecoshare


@dataclass(frozen=True)
class OnGpu:
    """Finished run.

    Attributes:
        counted_j: Energy (J) of the GPU by the driver's own counter, from before the run to after it.
        wall_s: Time (s) between these two readings.
    """

    done: Finished
    driver: FakeDriver
    counted_j: float
    wall_s: float

    @property
    def lines(self) -> list[Line]:
        """Lines of the file with the run's meter samples."""
        return list(read(self.done.folder / "samples.jsonl"))

    @property
    def samples(self) -> list[Sample]:
        """Meter samples of the run, without the other lines."""
        return samples(self.done.folder)

    @property
    def intervals(self) -> list[EnergyInterval]:
        """Intervals of the run's energy account."""
        return run_data.read(RunFolder.open(self.done.folder)).energy.of("cuda:0").intervals

    def profile(self, training: Training) -> Profile:
        """Profile of a training's class that the run used or made."""
        (path,) = (self.done.folder / "profiles").glob(f"{training.name}-*.json")
        return Profile.model_validate_json(path.read_bytes())


def two_gpus(folder: Path) -> FakeDriver:
    """Driver on which tests use the second GPU, so that the index of another GPU would show.

    The counter of that GPU looks all the time. So it has another compute capability than an H200, of which it does not.
    """
    (folder / "trains.py").write_text(SCRIPT)
    return FakeDriver(folder, [presets.A4000, replace(presets.H200, capability=89)])


def run_on_gpu(
    folder: Path,
    driver: FakeDriver,
    *jobs: dict[str, Any],
    options: tuple[str, ...] = (),
    meanwhile: Callable[[Path], None] | None = None,
) -> OnGpu:
    """Run jobs on the second GPU, the only visible one; faults are removed afterwards.

    Args:
        meanwhile: Called with the run's folder when the run has begun.
    """
    path = job_file(folder, *jobs)
    before_j, began_s = counter_j(driver), time.monotonic()
    environment = {**os.environ, **driver.environment, "CUDA_VISIBLE_DEVICES": "1"}
    line = words(path, "--device", "cuda:0", "--control", "off", *options)
    process = Started(*line, environment=environment, loads=True)  # the GPU's draw at rest is watched meanwhile
    try:
        if meanwhile is not None:
            meanwhile(folder / "ecoshare-runs" / "latest")
        stdout, stderr = process.communicate()
    except BaseException:
        process.send_signal(signal.SIGTERM)
        raise
    driver.mend()
    assert process.returncode == 0, stderr
    done = Finished(process.returncode, stdout, stderr, folder / "ecoshare-runs" / "latest")
    return OnGpu(done, driver, counter_j(driver) - before_j, time.monotonic() - began_s)


def profile_on_gpu(folder: Path, driver: FakeDriver, training: Training, *options: str) -> tuple[str, Profile]:
    """Output of `ecoshare profile` for a training on the second GPU, and the profile."""
    line = ["profile", "trains.py", "--device", "cuda:1", "--runs", "ecoshare-runs", "--profiles", "profiles", *options]
    environment = {**os.environ, **driver.environment}
    done = ecoshare(*line, "--", *training.args(100_000), cwd=folder, environment=environment)
    assert done.returncode == 0, done.stderr
    (path,) = (folder / "profiles").glob("*.json")
    return done.stdout, Profile.model_validate_json(path.read_bytes())


def samples(folder: Path) -> list[Sample]:
    """Samples of a run so far; none if it has not begun."""
    return [line for line in read(folder / "samples.jsonl") if isinstance(line, Sample)]


def at_work(folder: Path) -> bool:
    """Whether a job of a run has begun its iterations, and the energy counter moves."""
    last = samples(folder)[-2:]
    values_j = [sample.energy_j for sample in last if any(each.iterations for each in sample.jobs.values())]
    return len(values_j) == 2 and None not in values_j and values_j[0] != values_j[1]


def drawn_w(folder: Path, compute: float | None, memory: float = 0.0) -> float:
    """Power (W) of the fake H200 with one process of this load; for None, without a process."""
    with FakeDriver(folder, [presets.H200], virtual=True) as driver:
        if compute is not None:
            driver.gpu(0).load(1, compute=compute, memory=memory)
        before_j = counter_j(driver, 0)
        driver.advance(1000.0)
        return (counter_j(driver, 0) - before_j) / 1000.0


def counter_j(driver: FakeDriver, index: int = 1) -> float:
    """Energy counter (J) of a GPU."""
    with driver:
        gpu = nvml.NvmlDevice(driver.gpu(index).uuid)
        energy_j = gpu.energy_j()
        gpu.close()
    return energy_j
