"""Parking of real processes: ctypes calls of the fake driver, which moves their memory off the device and back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ecoshare.devices.nvidia import cuda_checkpoint, nvml
from ecoshare.devices.nvidia.cuda_checkpoint import TransferFault, park, resume
from tests.devices.conftest import StartJob
from tests.driver import COMPILER, FakeDriver, build, presets
from tests.driver.checkpoints import NOT_SUPPORTED, UNKNOWN, Checkpoints, old_driver
from tests.driver.cuda_job import CONTEXT_BYTES, GIB, CudaJob
from tests.driver.device_memory import DeviceMemory
from tests.warm import wait_for

pytestmark = pytest.mark.skipif(COMPILER is None, reason="the fake driver is written in C, and there is no compiler")

KEPT_BYTES = CONTEXT_BYTES + GIB
TOTAL_BYTES = presets.A4000.memory_bytes
GONE_PID = 2**22  # above all numbers of processes


def memory_of(driver: FakeDriver) -> DeviceMemory:
    return DeviceMemory(f"{driver.state_path}.memory1")


def shown_bytes(driver: FakeDriver) -> dict[int, int]:
    """Memory of each process on the second GPU, by NVML."""
    opened = nvml.NvmlDevice(driver.gpu(1).uuid)
    processes = opened.processes()
    opened.close()
    return processes


def failure(act: Callable[..., None], *args: object) -> TransferFault:
    with pytest.raises(TransferFault) as caught:
        act(*args)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_parked_process_leaves_the_device_and_comes_back(
    driver: FakeDriver, job: CudaJob, start: StartJob, checkpoints: Checkpoints
) -> None:
    assert memory_of(driver).taken_bytes() == shown_bytes(driver) == {job.pid: KEPT_BYTES}
    job.call("work", 0.05)  # is finished before the memory goes
    park(job.pid)
    assert memory_of(driver).taken_bytes() == shown_bytes(driver) == {}
    assert (checkpoints.state(job.pid), checkpoints.parked_bytes(job.pid)) == ("CHECKPOINTED", KEPT_BYTES)
    other = start()
    other.call("allocate", TOTAL_BYTES - 2 * KEPT_BYTES)  # fits only while the first one is parked
    park(job.pid)
    assert checkpoints.state(job.pid) == "CHECKPOINTED", "a second time changes nothing"
    resume(job.pid)
    assert memory_of(driver).taken_bytes()[job.pid] == shown_bytes(driver)[job.pid] == KEPT_BYTES
    resume(job.pid)
    assert (checkpoints.state(job.pid), checkpoints.parked_bytes(job.pid)) == ("RUNNING", 0)
    job.call("synchronize")


@pytest.mark.parametrize("call", ["allocate", "work", "event", "empty_cache"])
def test_cuda_calls_block_until_the_process_is_resumed(job: CudaJob, call: str) -> None:
    """If it failed, tests of a run would not notice a job that uses the device while it is parked."""
    park(job.pid)
    job.tell(call, *{"allocate": (GIB,), "work": (0.001,)}.get(call, ()))
    status = Path(f"/proc/{job.pid}/stat")
    wait_for(lambda: status.read_text().rpartition(")")[2].split()[0] == "S")  # it blocks, or has ended the call
    before_s = time.monotonic()
    resume(job.pid)
    assert job.ended_at_s() > before_s


def test_a_synchronisation_while_parked_kills_the_process(job: CudaJob, checkpoints: Checkpoints) -> None:
    park(job.pid)
    job.tell("synchronize")
    assert os.waitstatus_to_exitcode(os.waitpid(job.pid, 0)[1]) == -signal.SIGSEGV
    assert checkpoints.state(job.pid) is None


def test_a_process_that_finds_no_room_is_lost_for_ever(
    driver: FakeDriver, job: CudaJob, start: StartJob, checkpoints: Checkpoints
) -> None:
    park(job.pid)
    other = start()
    other.call("allocate", TOTAL_BYTES - KEPT_BYTES)
    fault = failure(resume, job.pid)
    assert (str(fault), fault.runs_on) == ("cuCheckpointProcessRestore failed: CUDA_ERROR_OUT_OF_MEMORY", False)
    os.kill(other.pid, signal.SIGKILL)
    os.waitpid(other.pid, 0)
    assert memory_of(driver).taken_bytes() == {} and checkpoints.state(job.pid) == "FAILED"
    assert not failure(resume, job.pid).runs_on and not failure(park, job.pid).runs_on


@pytest.mark.nightly
def test_a_process_in_a_long_call_runs_on(job: CudaJob, checkpoints: Checkpoints) -> None:
    job.call("work", 0.5)
    job.tell("synchronize")
    wait_for(lambda: checkpoints.is_in_call(job.pid))
    fault = failure(park, job.pid, 0.05)
    assert (str(fault), fault.runs_on) == ("a CUDA call of the process did not end in 0.05 s", True)
    job.ended_at_s()
    assert checkpoints.state(job.pid) == "RUNNING"
    job.call("work", 0.001)
    park(job.pid)


def test_a_lock_waits_for_the_call_that_the_process_is_in(job: CudaJob, checkpoints: Checkpoints) -> None:
    job.call("work", 0.2)
    job.tell("synchronize")
    wait_for(lambda: checkpoints.is_in_call(job.pid))
    park(job.pid)
    job.ended_at_s()
    assert checkpoints.state(job.pid) == "CHECKPOINTED"


def test_a_failed_checkpoint_leaves_the_process_running(
    driver: FakeDriver, job: CudaJob, checkpoints: Checkpoints
) -> None:
    checkpoints.fail("Checkpoint", NOT_SUPPORTED)
    fault = failure(park, job.pid)
    assert (str(fault), fault.runs_on) == ("cuCheckpointProcessCheckpoint failed: CUDA_ERROR_NOT_SUPPORTED", True)
    assert checkpoints.state(job.pid) == "RUNNING" and memory_of(driver).taken_bytes() == {job.pid: KEPT_BYTES}
    job.call("synchronize")


@pytest.mark.parametrize("call", ["@(Checkpoint|Unlock)", "@(Lock|GetState)"])
def test_a_process_that_cannot_be_put_back_is_lost(job: CudaJob, checkpoints: Checkpoints, call: str) -> None:
    checkpoints.fail(call, UNKNOWN, first=2 if "GetState" in call else 1)
    assert not failure(park, job.pid).runs_on


def test_an_unknown_result_is_named_by_its_number(job: CudaJob, checkpoints: Checkpoints) -> None:
    checkpoints.fail("Lock", 12345)
    fault = failure(park, job.pid)
    assert (str(fault), fault.runs_on) == ("cuCheckpointProcessLock failed: CUresult 12345", True)


def test_a_process_that_is_only_locked_is_unlocked(job: CudaJob, checkpoints: Checkpoints) -> None:
    """The one that parked it may have been killed on the way."""
    checkpoints.fail("@(Checkpoint|Unlock)", UNKNOWN, times=2)
    failure(park, job.pid)
    assert checkpoints.state(job.pid) == "LOCKED"
    resume(job.pid)
    assert checkpoints.state(job.pid) == "RUNNING"


def test_an_ended_process_is_told(driver: FakeDriver, job: CudaJob) -> None:
    for act in (park, resume):
        fault = failure(act, GONE_PID)
        assert (str(fault), fault.runs_on) == (f"process {GONE_PID} has ended", False)
    os.kill(job.pid, signal.SIGKILL)
    os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)
    assert str(failure(park, job.pid)) == f"process {job.pid} has ended", "a zombie has no memory"


def test_a_process_without_cuda_runs_on(start: StartJob) -> None:
    without = start()
    fault = failure(park, without.pid)
    assert (str(fault), fault.runs_on) == ("the process has not used CUDA yet", True)
    resume(without.pid)


def test_a_stopped_process_is_refused(job: CudaJob, checkpoints: Checkpoints) -> None:
    """Every call of the driver for it would hang."""
    os.kill(job.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, job.pid, os.WSTOPPED | os.WNOWAIT)
    fault = failure(park, job.pid)
    assert (str(fault), fault.runs_on) == (f"process {job.pid} is stopped (SIGSTOP)", True)
    os.kill(job.pid, signal.SIGCONT)
    assert checkpoints.state(job.pid) == "RUNNING"
    park(job.pid)


def test_a_process_with_nccl_is_refused(job: CudaJob, checkpoints: Checkpoints) -> None:
    job.call("name_thread", "pt_nccl_watchdg")
    fault = failure(park, job.pid)
    assert "NCCL" in str(fault) and fault.runs_on
    assert checkpoints.state(job.pid) == "RUNNING"
    assert not cuda_checkpoint.has_nccl_threads(["python", "pt_main_thread"])


UVM = "7f12a4000000-7f12a4200000 rw-s 00000000 00:06 512 {} /dev/nvidia-uvm\n"
OTHERS = (
    "7f12a6000000-7f12a6001000 rw-s 00000000 00:06 513  /dev/nvidia-uvm-tools\n"
    "7f12a8000000-7f12a8200000 rw-s 00000000 00:06 514  /dev/nvidia0\n"
    "7f12aa000000-7f12aa200000 rw-p 00000000 00:00 0 \n"
)


@pytest.mark.parametrize(("mappings", "has_some"), [(0, False), (1, False), (2, True), (9, True)])
def test_managed_memory_is_seen_by_its_mappings(mappings: int, has_some: bool) -> None:
    assert cuda_checkpoint.has_managed_memory(OTHERS + UVM * mappings) is has_some


def test_a_process_with_managed_memory_is_refused(job: CudaJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process here can map the device: the text of its mappings is another one's."""
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path: UVM * 2 if path.name == "maps" else read(path))
    fault = failure(park, job.pid)
    assert "managed memory" in str(fault) and fault.runs_on


@pytest.mark.slow
def test_a_machine_says_why_it_parks_nothing(driver: FakeDriver, job: CudaJob, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cuda_checkpoint.why_not() == ""
    monkeypatch.setattr(cuda_checkpoint, "LIBRARY", str(build.old_cuda()))
    assert "is for CUDA 12.4, and only drivers from 570 on" in cuda_checkpoint.why_not()
    assert failure(park, job.pid).runs_on
    monkeypatch.setattr(cuda_checkpoint, "LIBRARY", "libcuda-that-is-not-there.so.1")
    assert "libcuda-that-is-not-there.so.1 cannot be loaded" in cuda_checkpoint.why_not()


def program(*words: object, environment: dict[str, str]) -> tuple[int, dict[str, object]]:
    """Exit code and answer of the module as a program."""
    line = [sys.executable, "-m", "ecoshare.devices.nvidia.cuda_checkpoint", *map(str, words)]
    done = subprocess.run(line, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.stderr == "" and done.stdout.count("\n") == 1
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
def test_the_program_prints_one_line(driver: FakeDriver, job: CudaJob, checkpoints: Checkpoints) -> None:
    good = {"fault": "", "runs_on": True}
    assert program("park", job.pid, 5.0, environment=driver.environment) == (0, good)
    assert checkpoints.state(job.pid) == "CHECKPOINTED"
    assert program("resume", job.pid, environment=driver.environment) == (0, good)
    assert checkpoints.state(job.pid) == "RUNNING"
    code, answer = program("park", job.pid, environment=old_driver())
    assert (code, answer["runs_on"]) == (1, True) and "570" in str(answer["fault"])


def test_the_program_loads_the_standard_library_only() -> None:
    """If it failed, each transfer would wait for imports."""
    line = [sys.executable, "-c", "import ecoshare.devices.nvidia.cuda_checkpoint, sys; print(*sys.modules)"]
    loaded = subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()
    own = {"ecoshare", "ecoshare.devices", "ecoshare.devices.nvidia", "ecoshare.devices.nvidia.cuda_checkpoint"}
    assert {name for name in loaded if name.startswith("ecoshare")} == own
    assert not {"asyncio", "subprocess", "typing", "torch", "pynvml"} & set(loaded)


def test_the_open_kernel_module_is_told_by_its_file() -> None:
    said = "NVRM version: NVIDIA UNIX {}x86_64  580.95.05  Release Build\nGCC version:  gcc version 12.3.0\n"
    assert cuda_checkpoint.is_open(said.format("Open Kernel Module for "))
    assert not cuda_checkpoint.is_open(said.format(""))
