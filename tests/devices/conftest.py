"""Fake driver for the tests that need one, and processes with CUDA on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.driver import COMPILER, FakeDriver, presets
from tests.driver.checkpoints import Checkpoints
from tests.lane.forked import ForkedJobs

if TYPE_CHECKING:
    from tests.driver.cuda_job import CudaJob

GIB = 1 << 30

StartJob = Callable[[], "CudaJob"]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    """Driver of this process: two different GPUs in virtual time."""
    if COMPILER is None:
        pytest.skip("the fake driver is written in C, and there is no compiler")
    with FakeDriver(tmp_path, [presets.H200, presets.A4000], virtual=True) as driver:
        yield driver


@pytest.fixture
def start(driver: FakeDriver) -> Iterator[StartJob]:
    """Starts processes on the second GPU."""
    from tests.driver.cuda_job import CudaJob  # imports torch, which few tests need

    jobs = ForkedJobs()
    yield lambda: CudaJob(jobs, driver)
    jobs.end()


@pytest.fixture
def job(start: StartJob) -> CudaJob:
    """Process with 1 GiB of memory beside its context."""
    started = start()
    started.call("allocate", GIB)
    return started


@pytest.fixture
def checkpoints(driver: FakeDriver) -> Checkpoints:
    """Checkpoint calls of the driver."""
    return Checkpoints(driver)
