"""Transfers by helper processes: their time limit, their end, and what becomes of the job when one is killed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from ecoshare.devices import registry
from ecoshare.devices.memory_transfer import CudaMemoryTransfer, NoMemoryTransfer, TransferFault
from ecoshare.devices.nvidia import cuda_checkpoint
from ecoshare.errors import UnfitEnvironment
from ecoshare.runtime.nodes import cleanup
from tests.driver import COMPILER, FakeDriver, build, presets
from tests.driver.checkpoints import NOT_READY, Checkpoints, old_driver
from tests.driver.cuda_job import CONTEXT_BYTES, GIB, CudaJob
from tests.driver.device_memory import DeviceMemory

pytestmark = pytest.mark.skipif(COMPILER is None, reason="the fake driver is written in C, and there is no compiler")

KEPT_BYTES = CONTEXT_BYTES + GIB


@dataclasses.dataclass(frozen=True)
class Transfers:
    """Transfers in a run of their own.

    Attributes:
        token: Mark of the run's processes.
        environment: Environment of the helpers.
    """

    token: str
    environment: dict[str, str]

    def make(self, limit_s: float = 60.0) -> CudaMemoryTransfer:
        """Transfer with a time limit."""
        return CudaMemoryTransfer(self.environment, limit_s)

    async def helper(self) -> int:
        """Number of the helper that runs, as soon as one does."""
        async with asyncio.timeout(30.0):
            while not (found := cleanup.members(self.token)):
                await asyncio.sleep(0.005)
        (pid,) = found
        return pid


@pytest.fixture
def transfers(driver: FakeDriver) -> Iterator[Transfers]:
    """Transfers of which no helper may be left."""
    token = f"test-{os.getpid()}-{time.monotonic_ns()}"
    yield Transfers(token, {**driver.environment, cleanup.TOKEN: token})
    left = cleanup.members(token)
    cleanup.end_all(token)
    assert not left, "helpers outlived their transfers"


def fault_of(call: Coroutine[Any, Any, None]) -> TransferFault:
    with pytest.raises(TransferFault) as caught:
        asyncio.run(call)
    return caught.value


def on_device(driver: FakeDriver) -> dict[int, int]:
    return DeviceMemory(f"{driver.state_path}.memory1").taken_bytes()


def test_memory_goes_to_the_host_and_comes_back(
    driver: FakeDriver, transfers: Transfers, job: CudaJob, checkpoints: Checkpoints
) -> None:
    asyncio.run(transfers.make().park(job.pid))
    assert on_device(driver) == {} and checkpoints.state(job.pid) == "CHECKPOINTED"
    asyncio.run(transfers.make().resume(job.pid))
    assert on_device(driver) == {job.pid: KEPT_BYTES} and checkpoints.state(job.pid) == "RUNNING"


def test_a_fault_of_the_driver_reaches_the_caller(transfers: Transfers, job: CudaJob, checkpoints: Checkpoints) -> None:
    checkpoints.fail("Lock", NOT_READY)
    fault = fault_of(transfers.make().park(job.pid))
    assert (str(fault), fault.runs_on) == ("a CUDA call of the process did not end in 10 s", True)
    asyncio.run(transfers.make().resume(job.pid))
    checkpoints.fail("GetState", NOT_READY)
    assert not fault_of(transfers.make().resume(job.pid)).runs_on


@pytest.mark.slow
@pytest.mark.parametrize("call", ["Lock", "Checkpoint"])
def test_a_driver_that_hangs_costs_the_time_limit(
    transfers: Transfers, job: CudaJob, checkpoints: Checkpoints, call: str
) -> None:
    """The fixture finds a helper that is left. The process comes back when the driver answers again."""
    checkpoints.hang(call)
    fault = fault_of(transfers.make(limit_s=0.5).park(job.pid))
    assert (str(fault), fault.runs_on) == (f"the driver did not park process {job.pid} in 0.5 s", False)
    asyncio.run(transfers.make().resume(job.pid))
    assert checkpoints.state(job.pid) == "RUNNING"
    job.call("synchronize")


async def kill_helper(
    transfers: Transfers, reached: Callable[[], bool], call: Coroutine[Any, Any, None]
) -> BaseException | None:
    """Error of a call of which the helper is killed as soon as a condition holds."""
    task = asyncio.create_task(call)
    pid = await transfers.helper()
    while not reached():
        await asyncio.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    (error,) = await asyncio.gather(task, return_exceptions=True)
    return error


def test_a_job_runs_on_if_the_helper_that_parks_it_is_killed(
    driver: FakeDriver, transfers: Transfers, job: CudaJob, checkpoints: Checkpoints
) -> None:
    checkpoints.hang("Checkpoint")
    parked = transfers.make().park(job.pid)
    error = asyncio.run(kill_helper(transfers, lambda: checkpoints.state(job.pid) == "CHECKPOINTED", parked))
    assert isinstance(error, TransferFault) and error.runs_on
    assert checkpoints.state(job.pid) == "RUNNING" and on_device(driver) == {job.pid: KEPT_BYTES}


def test_a_job_is_resumed_though_the_helper_is_killed(
    driver: FakeDriver, transfers: Transfers, job: CudaJob, checkpoints: Checkpoints
) -> None:
    """The restore ends without its caller. If it failed, the job would stay locked."""
    cuda_checkpoint.park(job.pid)
    checkpoints.hang("Restore")
    resumed = transfers.make().resume(job.pid)
    error = asyncio.run(kill_helper(transfers, lambda: checkpoints.state(job.pid) == "LOCKED", resumed))
    assert error is None and checkpoints.state(job.pid) == "RUNNING"
    assert on_device(driver) == {job.pid: KEPT_BYTES}


def test_a_cancelled_transfer_leaves_no_helper(transfers: Transfers, job: CudaJob, checkpoints: Checkpoints) -> None:
    async def cancel() -> None:
        task = asyncio.create_task(transfers.make().park(job.pid))
        pid = await transfers.helper()
        assert transfers.token in Path(f"/proc/{pid}/environ").read_text()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled() and cleanup.members(transfers.token) == []

    checkpoints.hang("Checkpoint")
    asyncio.run(cancel())


def test_transfers_of_two_processes_overlap(
    transfers: Transfers, job: CudaJob, start: Callable[[], CudaJob], checkpoints: Checkpoints
) -> None:
    """If one waited for the other, a job that hangs would keep all others from their turns."""
    other = start()
    other.call("allocate", GIB)
    checkpoints.hang("Checkpoint", times=1)

    async def park_both() -> None:
        hanging = asyncio.create_task(transfers.make().park(job.pid))
        await transfers.helper()
        while checkpoints.state(job.pid) != "CHECKPOINTED":
            await asyncio.sleep(0.005)
        await transfers.make().park(other.pid)
        assert not hanging.done()
        hanging.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await hanging

    asyncio.run(park_both())
    assert checkpoints.state(other.pid) == "CHECKPOINTED"


def test_a_helper_that_cannot_be_started_costs_nothing(
    transfers: Transfers, job: CudaJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    fault = fault_of(transfers.make().park(job.pid))
    assert fault.runs_on and "can be started: No such file or directory" in str(fault)
    assert not fault_of(transfers.make().resume(job.pid)).runs_on


def test_a_helper_that_always_dies_makes_the_job_lost(
    transfers: Transfers, job: CudaJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    for call, words in (("park", "parks process {} died"), ("resume", "resumes process {} died twice")):
        fault = fault_of(getattr(transfers.make(), call)(job.pid))
        assert words.format(job.pid) in str(fault) and not fault.runs_on


def refusal(driver: FakeDriver) -> UnfitEnvironment:
    (device, *_) = registry.visible_gpus()
    with pytest.raises(UnfitEnvironment) as caught:
        registry.vendor(device.vendor).memory_transfer(device, driver.environment)
    assert "--host-memory" in caught.value.hint
    return caught.value


def test_nvidia_says_why_memory_cannot_be_moved(
    driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (device, *_) = registry.visible_gpus()
    transfer = registry.vendor("nvidia").memory_transfer(device, driver.environment)
    assert isinstance(transfer, CudaMemoryTransfer)
    with monkeypatch.context() as changed:
        changed.setattr(cuda_checkpoint, "LIBRARY", str(build.old_cuda()))
        assert "drivers from 570 on" in str(refusal(driver))
    with monkeypatch.context() as changed:
        control = tmp_path / "nvidia-cuda-mps-control"
        control.write_text("#!/bin/sh\nexit 0\n")
        control.chmod(0o755)
        (tmp_path / "control").touch()
        changed.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        changed.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
        assert f"MPS daemon at {tmp_path}" in str(refusal(driver))


def test_a_gpu_with_mig_instances_parks_nothing(tmp_path: Path) -> None:
    with FakeDriver(tmp_path, [dataclasses.replace(presets.H200, mig_mode=1)], virtual=True) as driver:
        assert "cuda:0 is cut into MIG instances" in str(refusal(driver))


def test_processors_move_nothing_from_outside() -> None:
    device = registry.processors()
    assert isinstance(registry.vendor("cpu").memory_transfer(device, {}), NoMemoryTransfer)


def test_the_old_driver_is_found_by_children(job: CudaJob, transfers: Transfers) -> None:
    fault = fault_of(CudaMemoryTransfer({**transfers.environment, **old_driver()}).park(job.pid))
    assert fault.runs_on and "570" in str(fault)
