"""The fake driver itself, through the real `pynvml` and `zeus`: other tests rely on it."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml
import pytest
from zeus.device.gpu import common as errors
from zeus.device.gpu import get_gpus
from zeus.device.gpu.nvidia import NVIDIAGPU, NVIDIAGPUs

from ecoshare.devices.nvidia import nvml
from ecoshare.errors import UnfitEnvironment
from tests.driver import COMPILER, FakeDriver, Fault, Pretend, build, cuda_processes, device_memory, presets
from tests.driver import state as layout

ROOT = Path(__file__).parents[2]
GIB = 2**30
DEFAULT = presets.H200
"""GPU 0 of the fixture; GPU 1 is an A4000."""

pytestmark = pytest.mark.skipif(COMPILER is None, reason="the fake driver is written in C, and there is no compiler")


@pytest.fixture
def gpu(driver: FakeDriver) -> Iterator[NVIDIAGPU]:
    """GPU 0 from zeus."""
    pynvml.nvmlInit()
    yield NVIDIAGPU(0)


def power_w(gpu: NVIDIAGPU) -> float:
    return float(gpu.get_instant_power_usage()) / 1000


def clock_mhz(gpu: NVIDIAGPU) -> int:
    return int(pynvml.nvmlDeviceGetClockInfo(gpu.handle, pynvml.NVML_CLOCK_SM))


def reasons(gpu: NVIDIAGPU) -> int:
    return int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu.handle))


STRUCTURES = {**layout.STRUCTURES, **cuda_processes.STRUCTURES, **device_memory.STRUCTURES}


def test_c_and_python_agree_on_the_layout(tmp_path: Path) -> None:
    """If they did not, every other test would read noise."""
    fields = [(name, field[0]) for name, type_ in STRUCTURES.items() for field in type_._fields_]
    prints = [f'printf("{n}.{f} %zu\\n", offsetof(struct {n}, {f}));' for n, f in fields]
    prints += [f'printf("{n} %zu\\n", sizeof(struct {n}));' for n in STRUCTURES]
    source = tmp_path / "layout.c"
    body = '#include <stdio.h>\n#include <stddef.h>\n#include "cuda.h"\nint main(void) {' + "\n".join(prints) + "}"
    source.write_text(body)
    build.compile_c(tmp_path / "layout", source)
    printed = subprocess.run([tmp_path / "layout"], capture_output=True, text=True, check=True).stdout.splitlines()
    mirror = [f"{n}.{f} {getattr(STRUCTURES[n], f).offset}" for n, f in fields]
    mirror += [f"{n} {ctypes.sizeof(type_)}" for n, type_ in STRUCTURES.items()]
    assert printed == mirror


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm to list the symbols")
def test_it_exports_nothing_that_the_real_library_does_not_have(driver: FakeDriver) -> None:
    """A getter of locked clocks, say, would let code pass that cannot work."""
    listed = subprocess.run(["nm", "-D", "--defined-only", driver.library], capture_output=True, text=True, check=True)
    exported = {line.split()[-1] for line in listed.stdout.splitlines()}
    real = set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', Path(pynvml.__file__).read_text()))
    assert exported - real == {"nvmlInit_v2"}  # real, but not what the bindings call
    assert not [name for name in exported if "LockedClocks" in name and "Get" in name]


def test_ecoshare_sees_the_gpus(driver: FakeDriver) -> None:
    driver.gpu(1).load(101, used_bytes=2 * GIB)
    first, second = nvml.gpus()
    assert (first.model, first.index, first.default_limit_w, first.unfit) == ("NVIDIA H200", 0, 700.0, "")
    assert (second.uuid, second.compute_mode, second.unfit) == (driver.gpu(1).uuid, "default", "")
    assert second.free_bytes == presets.A4000.memory_bytes - presets.A4000.reserved_bytes - 2 * GIB
    opened = nvml.NvmlDevice(second.uuid)
    assert opened.processes() == {101: 2 * GIB}
    assert opened.state().memory_bytes == second.memory_bytes - second.free_bytes
    opened.close()


def test_the_rest_of_nvml_answers_as_documented(driver: FakeDriver) -> None:
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(driver.gpu(1).uuid)
    second = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    assert (second.reserved, second.used) == (presets.A4000.reserved_bytes, 0)
    assert pynvml.nvmlSystemGetDriverVersion() == "580.95.05"
    assert pynvml.nvmlSystemGetNVMLVersion() == "13.580.95.05"
    assert pynvml.nvmlDeviceGetIndex(handle) == 1
    assert pynvml.nvmlDeviceGetSupportedMemoryClocks(handle) == [7001, 5001]
    assert pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, 5001)[0] == 1650
    assert pynvml.nvmlDeviceGetPowerManagementLimitConstraints(handle) == [100_000, 140_000]
    for read in (pynvml.nvmlDeviceGetApplicationsClock, pynvml.nvmlDeviceGetDefaultApplicationsClock):
        assert [read(handle, kind) for kind in (pynvml.NVML_CLOCK_GRAPHICS, pynvml.NVML_CLOCK_MEM)] == [2100, 7001]
    assert pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM) == 2100
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(handle) == []
    driver.gpu(1).temperature(71)
    assert pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU) == 71
    assert NVIDIAGPU(1).get_gpu_temperature() == 71
    driver.gpu(1).load(7, compute=0.5, memory=0.25)
    rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
    assert (rates.gpu, rates.memory) == (50, 25)
    for read in (pynvml.nvmlDeviceGetMigMode, pynvml.nvmlDeviceGetC2cModeInfoV):
        with pytest.raises(pynvml.NVMLError_NotSupported):
            read(handle)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetHandleByIndex(2)
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetHandleByUUID("GPU-none")
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, 6000)


def test_zeus_lists_the_gpus(driver: FakeDriver) -> None:
    listed = NVIDIAGPUs()
    assert [gpu.get_name() for gpu in listed.gpus] == ["NVIDIA H200", "NVIDIA RTX A4000"]
    assert get_gpus().get_total_energy_consumption(0) == 0
    with pytest.raises(errors.ZeusBaseGPUError):
        NVIDIAGPUs(ensure_homogeneous=True)


def test_energy_is_the_integral_of_power(driver: FakeDriver, gpu: NVIDIAGPU) -> None:
    """Values computed by hand for the H200 at the highest clocks, so that x = y = V = 1."""
    driver.advance(10.0)
    idle_w = power_w(gpu)
    assert gpu.get_total_energy_consumption() == pytest.approx(10_000 * idle_w, abs=10)
    driver.gpu(0).load(101, compute=0.5)
    loaded_w = 65.0 + 15.0 + 40.0 + 0.5 * 430.0
    assert power_w(gpu) == pytest.approx(loaded_w)
    driver.advance(3600.0)
    driver.gpu(0).end(101)
    driver.advance(100.0)
    wanted_j = 110 * idle_w + 3600 * loaded_w
    assert gpu.get_total_energy_consumption() / 1000 == pytest.approx(wanted_j, rel=1e-6)


@pytest.mark.parametrize(("board", "empty_w", "held_w"), [(presets.H100, 72.0, 122.0), (presets.L40S, 36.0, 102.0)])
def test_a_context_without_work_holds_the_highest_clocks(
    tmp_path: Path, board: presets.Preset, empty_w: float, held_w: float
) -> None:
    """Else no test would tell the draw of an empty GPU from that of one at rest with contexts."""
    import pynvml

    with FakeDriver(tmp_path, [board], virtual=True) as driver:
        gpu, found = nvml.NvmlDevice(driver.gpu(0).uuid), list[tuple[Any, ...]]()
        for compute in (None, 0.0, 0.5):
            if compute is not None:
                driver.gpu(0).load(1, compute=compute, used_bytes=1 << 29)
            driver.advance(10.0)  # the power that is told is an average
            state = gpu.state()
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            found.append((state.power_w, state.gpu_clock_mhz, pynvml.nvmlDeviceGetPerformanceState(handle)))
        gpu.close()
    (clocks,) = board.clocks_mhz.values()
    assert found[0] == (pytest.approx(empty_w, abs=0.5), clocks[-1], 8)
    assert found[1] == (pytest.approx(held_w, abs=0.5), clocks[0], 0)
    assert found[2][0] > held_w + 50.0 and found[2][1:] == (clocks[0], 0)


def test_pending_events_are_integrated_one_by_one(driver: FakeDriver, gpu: NVIDIAGPU) -> None:
    idle_w, wanted_j = power_w(gpu), 0.0
    for second in range(20):
        compute = second % 2 / 2
        driver.gpu(0).load(101, compute=compute)
        driver.advance(1.0)
        wanted_j += 120.0 + 430.0 * compute
    assert gpu.get_total_energy_consumption() / 1000 == pytest.approx(wanted_j)
    assert idle_w < 120.0


def test_the_counter_moves_in_ticks(tmp_path: Path) -> None:
    with FakeDriver(tmp_path, virtual=True, period_ms=100, phase_ms=30) as driver:
        pynvml.nvmlInit()
        gpu = NVIDIAGPU(0)
        driver.gpu(0).load(101, compute=1.0)
        seen_mj = []
        for _ in range(30):
            seen_mj.append(gpu.get_total_energy_consumption())
            driver.advance(0.010)
    steps = [index for index in range(1, 30) if seen_mj[index] != seen_mj[index - 1]]
    assert steps == [3, 13, 23]
    assert [seen_mj[index] for index in steps] == [550 * 30, 550 * 130, 550 * 230]


def test_a_load_between_two_ticks_shows_with_the_second(driver: FakeDriver, gpu: NVIDIAGPU) -> None:
    driver.gpu(0).load(101)
    driver.advance(0.130)
    assert gpu.get_total_energy_consumption() == 100 * 120
    driver.gpu(0).load(101, compute=1.0)
    driver.advance(0.050)
    assert gpu.get_total_energy_consumption() == 100 * 120
    driver.advance(0.050)
    assert gpu.get_total_energy_consumption() == 130 * 120 + 70 * 550


def test_average_power_lags_behind(driver: FakeDriver, gpu: NVIDIAGPU) -> None:
    driver.advance(10.0)
    driver.gpu(0).load(101, compute=1.0)
    driver.advance(0.5)
    assert 70.0 < gpu.get_average_power_usage() / 1000 < 500.0
    assert power_w(gpu) == 550.0
    driver.advance(10.0)
    assert pynvml.nvmlDeviceGetPowerUsage(gpu.handle) == 550_000


def test_two_that_contend_for_the_memory_draw_more_than_their_sum(driver: FakeDriver, gpu: NVIDIAGPU) -> None:
    """Else attribution by adding up would be right by construction."""
    driver.gpu(0).load(101)
    base_w = power_w(gpu)
    driver.gpu(0).load(101, memory=0.5)
    alone_w = power_w(gpu) - base_w
    driver.gpu(0).load(102, memory=0.5)
    assert power_w(gpu) - base_w > 1.1 * 2 * alone_w


def test_two_at_the_power_limit_draw_less_than_their_sum_and_are_slower(driver: FakeDriver, gpu: NVIDIAGPU) -> None:
    driver.gpu(0).load(101)
    base_w = power_w(gpu)
    driver.gpu(0).load(101, compute=0.5, memory=0.5)
    alone_w, alone_mhz = power_w(gpu) - base_w, clock_mhz(gpu)
    driver.gpu(0).load(102, compute=0.5, memory=0.5)
    assert power_w(gpu) - base_w < 2 * alone_w
    assert clock_mhz(gpu) < alone_mhz == 1980
    assert power_w(gpu) <= 700.0
    assert reasons(gpu) == pynvml.nvmlClocksEventReasonSwPowerCap


def test_a_lower_power_limit_lowers_the_clock_to_the_highest_that_fits(driver: FakeDriver, gpu: NVIDIAGPU) -> None:
    driver.gpu(0).load(101, compute=1.0)
    gpu.set_power_management_limit(300_000)
    limited_mhz = clock_mhz(gpu)
    assert power_w(gpu) <= 300.0 and limited_mhz < 1980
    gpu.set_power_management_limit(700_000)
    gpu.set_gpu_locked_clocks(345, limited_mhz + 15)
    assert clock_mhz(gpu) == limited_mhz + 15 and power_w(gpu) > 300.0
    with pytest.raises(errors.ZeusGPUInvalidArgError):
        gpu.set_power_management_limit(701_000)
    gpu.set_power_management_limit(250_000)
    gpu.reset_power_management_limit()
    assert driver.gpu(0).settings().power_limit_w == gpu.get_power_management_limit() / 1000 == 700.0


def test_locked_clocks_change_the_power_loaded_and_idle(driver: FakeDriver, gpu: NVIDIAGPU) -> None:
    idle_w = power_w(gpu)
    assert (clock_mhz(gpu), reasons(gpu)) == (345, pynvml.nvmlClocksEventReasonGpuIdle)
    gpu.set_gpu_locked_clocks(1200, 1200)
    assert clock_mhz(gpu) == 1200 and power_w(gpu) > idle_w
    driver.gpu(0).load(101, compute=1.0)
    locked_w = power_w(gpu)
    gpu.reset_gpu_locked_clocks()
    assert power_w(gpu) > locked_w and clock_mhz(gpu) == 1980
    assert driver.gpu(0).settings().gpu_clocks_mhz is None
    with pytest.raises(errors.ZeusGPUInvalidArgError):
        gpu.set_gpu_locked_clocks(1300, 1200)


def test_a_lower_memory_clock_has_graphics_clocks_of_its_own(driver: FakeDriver, gpu: NVIDIAGPU) -> None:
    second = NVIDIAGPU(1)
    driver.gpu(1).load(101, memory=1.0)
    fast_w = power_w(second)
    second.set_memory_locked_clocks(5001, 5001)
    assert pynvml.nvmlDeviceGetClockInfo(second.handle, pynvml.NVML_CLOCK_MEM) == 5001
    assert clock_mhz(second) == 1650 and power_w(second) < fast_w
    assert driver.gpu(1).settings().memory_clocks_mhz == (5001, 5001)
    second.reset_memory_locked_clocks()
    assert power_w(second) == fast_w


def test_what_is_requested_is_not_always_achieved(driver: FakeDriver, gpu: NVIDIAGPU) -> None:
    driver.gpu(0).load(101, compute=0.1)
    driver.gpu(0).ceiling(1500)
    gpu.set_gpu_locked_clocks(1800, 1800)
    assert clock_mhz(gpu) == 1500
    assert reasons(gpu) == pynvml.nvmlClocksEventReasonSwThermalSlowdown
    driver.gpu(0).ceiling(None)
    assert clock_mhz(gpu) == 1800


def test_setters_are_logged_with_their_caller(driver: FakeDriver, gpu: NVIDIAGPU) -> None:
    gpu.set_gpu_locked_clocks(600, 900)
    gpu.set_persistence_mode(True)
    driver.gpu(0).fault(Fault.NO_PERMISSION)
    with pytest.raises(errors.ZeusGPUNoPermissionError):
        gpu.set_power_management_limit(400_000)
    assert [(call.function, call.gpu, call.values, call.result, call.pid) for call in driver.setter_calls()] == [
        ("nvmlDeviceSetGpuLockedClocks", 0, (600, 900), 0, os.getpid()),
        ("nvmlDeviceSetPersistenceMode", 0, (1, 0), 0, os.getpid()),
        ("nvmlDeviceSetPowerManagementLimit", 0, (400_000, 0), pynvml.NVML_ERROR_NO_PERMISSION, os.getpid()),
    ]
    assert driver.gpu(0).settings().power_limit_w == 700.0


@pytest.mark.parametrize(
    ("fault", "error", "meets"),
    [
        (Fault.NO_PERMISSION, errors.ZeusGPUNoPermissionError, lambda gpu: gpu.reset_gpu_locked_clocks()),
        (Fault.NO_ENERGY_COUNTER, errors.ZeusGPUNotSupportedError, lambda gpu: gpu.get_total_energy_consumption()),
        (Fault.NO_LOCKED_CLOCKS, errors.ZeusGPUNotSupportedError, lambda gpu: gpu.set_gpu_locked_clocks(345, 900)),
        (Fault.NO_MEMORY_CLOCKS, errors.ZeusGPUNotSupportedError, lambda gpu: gpu.reset_memory_locked_clocks()),
        (Fault.NO_POWER, errors.ZeusGPUNotSupportedError, lambda gpu: gpu.get_instant_power_usage()),
        (Fault.GPU_LOST, errors.ZeusGPULostError, lambda gpu: gpu.get_total_energy_consumption()),
        (Fault.TIMEOUT, errors.ZeusGPUTimeoutError, lambda gpu: gpu.get_power_management_limit()),
        (Fault.UNKNOWN, errors.ZeusGPUUnknownError, lambda gpu: gpu.get_instant_power_usage()),
    ],
)
def test_faults(
    driver: FakeDriver, gpu: NVIDIAGPU, fault: Fault, error: type[Exception], meets: Callable[[NVIDIAGPU], Any]
) -> None:
    other = NVIDIAGPU(1)
    driver.gpu(0).fault(fault)
    with pytest.raises(error):
        meets(gpu)
    other.get_total_energy_consumption()
    other.set_gpu_locked_clocks(345, 900)
    driver.mend()
    meets(gpu)


def test_a_fault_may_come_late_and_pass(driver: FakeDriver, gpu: NVIDIAGPU) -> None:
    driver.fault(Fault.UNKNOWN, functions="nvmlDeviceGetName", first=3, times=2)
    outcomes = []
    for _ in range(6):
        try:
            outcomes.append(gpu.get_name())
        except errors.ZeusGPUUnknownError:
            outcomes.append("")
    name = DEFAULT.name
    assert outcomes == [name, name, "", "", name, name]


def test_utilisation_may_be_missing_where_the_rest_is_told(driver: FakeDriver) -> None:
    driver.gpu(0).fault(Fault.NO_UTILISATION)
    opened = nvml.NvmlDevice(driver.gpu(0).uuid)
    state = opened.state()
    assert state.busy is None and state.power_w is not None
    opened.close()


def test_a_setter_may_succeed_without_effect(driver: FakeDriver, gpu: NVIDIAGPU) -> None:
    driver.gpu(0).fault(Fault.INEFFECTIVE)
    gpu.set_power_management_limit(400_000)
    gpu.set_gpu_locked_clocks(600, 900)
    settings = driver.gpu(0).settings()
    assert (gpu.get_power_management_limit(), settings.gpu_clocks_mhz) == (700_000, None)
    assert [call.result for call in driver.setter_calls()] == [0, 0]


def test_the_counter_may_go_back_once_and_stand_still(driver: FakeDriver, gpu: NVIDIAGPU) -> None:
    driver.gpu(0).load(101, compute=1.0)
    driver.advance(10.0)
    assert gpu.get_total_energy_consumption() == 5_500_000
    driver.gpu(0).fault(Fault.COUNTER_RESET, times=1)
    driver.advance(1.0)
    assert gpu.get_total_energy_consumption() == 0
    driver.advance(1.0)
    assert gpu.get_total_energy_consumption() == 550_000
    driver.gpu(0).fault(Fault.COUNTER_STALE)
    driver.advance(60.0)
    assert gpu.get_total_energy_consumption() == 550_000
    driver.mend()
    assert gpu.get_total_energy_consumption() == 61 * 550_000


def test_the_driver_may_not_be_there(driver: FakeDriver) -> None:
    driver.fault(Fault.DRIVER_NOT_LOADED)
    assert nvml.gpus() == []
    driver.mend()
    driver.fault(Fault.VERSION_MISMATCH)
    with pytest.raises(UnfitEnvironment, match="mismatch"):
        nvml.gpus()
    driver.mend()
    assert len(nvml.gpus()) == 2


def test_boards_before_volta_have_no_counter(tmp_path: Path) -> None:
    with FakeDriver(tmp_path, [presets.P100]) as driver:
        opened = nvml.NvmlDevice(driver.gpu(0).uuid)
        with pytest.raises(UnfitEnvironment, match="Volta"):
            opened.energy_j()
        with pytest.raises(errors.ZeusGPUNotSupportedError):
            NVIDIAGPU(0).get_total_energy_consumption()
        opened.close()


def test_one_process_meets_several_drivers_one_after_the_other(tmp_path: Path) -> None:
    """Initialisations without a shutdown must not keep the state of the first one."""
    for index, preset in enumerate((presets.H200, presets.V100)):
        (tmp_path / str(index)).mkdir()
        with FakeDriver(tmp_path / str(index), [preset]):
            pynvml.nvmlInit()
            pynvml.nvmlInit()
            assert NVIDIAGPU(0).get_name() == preset.name
    with pytest.raises(pynvml.NVMLError):
        pynvml.nvmlDeviceGetCount()


@contextmanager
def child(driver: FakeDriver, *command: str) -> Iterator[subprocess.Popen[str]]:
    """Process on this driver that has reported its start."""
    environment = {**os.environ, **driver.environment}
    with subprocess.Popen(
        [sys.executable, *command], env=environment, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            yield process
        finally:
            process.kill()


def test_a_load_ends_with_its_process(driver: FakeDriver, gpu: NVIDIAGPU) -> None:
    idle_w = power_w(gpu)
    with child(driver, "-m", "tests.driver", "--compute", "1", "--used-bytes", "1000") as process:
        assert power_w(gpu) == 550.0
        (found,) = pynvml.nvmlDeviceGetComputeRunningProcesses(gpu.handle)
        assert (found.pid, found.usedGpuMemory) == (process.pid, 1000)
        os.kill(process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie holds no GPU
        power_w(gpu)
        assert pynvml.nvmlDeviceGetComputeRunningProcesses(gpu.handle) == []
        assert power_w(gpu) == idle_w


CLIENT = """
import pynvml
pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
print("begun", flush=True)
low = False
while True:
    low = not low
    pynvml.nvmlDeviceSetGpuLockedClocks(gpu, 345, 900 if low else 1800)
    pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
"""


@pytest.mark.nightly
def test_processes_share_it_and_may_be_killed_at_any_moment(driver: FakeDriver, gpu: NVIDIAGPU) -> None:
    """A half-written state would lose energy or a load; a lock that was left would hang this test."""
    driver.gpu(0).load(101)
    for _ in range(6):
        with child(driver, "-c", CLIENT) as client:
            gpu.reset_gpu_locked_clocks()
            mj, step = gpu.get_total_energy_consumption(), 0
            while step < 100 or driver.gpu(0).settings().gpu_clocks_mhz is None:
                driver.gpu(0).load(101, compute=step % 3 / 2)
                driver.advance(0.1)
                before_mj, mj = mj, gpu.get_total_energy_consumption()
                assert before_mj < mj <= before_mj + 55_001 and client.poll() is None
                step += 1
            os.kill(client.pid, signal.SIGKILL)
    gpu.reset_gpu_locked_clocks()
    assert [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu.handle)] == [101]
    driver.gpu(0).load(101, compute=1.0)
    assert power_w(gpu) == 550.0


def test_a_change_leaves_the_page_before_it_whole(driver: FakeDriver, gpu: NVIDIAGPU) -> None:
    """A process that is killed before the last store leaves a valid state, in the driver and in Python."""

    def pages() -> tuple[int, list[bytes]]:
        raw = layout.Layout.from_buffer_copy(driver.state_path.read_bytes())
        return raw.header.which, [bytes(page) for page in raw.pages]

    for change in (lambda: gpu.set_gpu_locked_clocks(600, 900), lambda: driver.advance(1.0)):
        which, before = pages()
        change()
        now, after = pages()
        assert now != which and after[which] == before[which] and after[now] != before[which]


def test_real_time_passes_by_itself(tmp_path: Path) -> None:
    with FakeDriver(tmp_path, period_ms=5) as driver:
        driver.gpu(0).load(101, compute=1.0)
        opened = nvml.NvmlDevice(driver.gpu(0).uuid)
        before_j = opened.energy_j()
        while opened.energy_j() < before_j + 550.0 * 0.02:
            pass
        with pytest.raises(AssertionError, match="real"):
            driver.advance(1.0)
        opened.close()


@pytest.mark.slow
def test_nothing_is_lost_silently(tmp_path: Path, driver: FakeDriver, gpu: NVIDIAGPU) -> None:
    """The driver in a client's process looks at the events; elsewhere the appender hears of it."""
    for _ in range(layout.EVENTS + 1):
        driver.gpu(0).load(101, compute=1.0)
    (tmp_path / "other").mkdir()
    with FakeDriver(tmp_path / "other") as other:
        for pid in range(1, layout.LOADS + 1):
            other.gpu(0).load(pid)
        with pytest.raises(BufferError, match="32 processes"):
            other.gpu(0).load(99)
    for _ in range(layout.EVENTS - layout.LOADS):
        other.gpu(0).load(1)
    with pytest.raises(BufferError, match="events wait"):
        other.gpu(0).load(1)


def test_a_script_needs_only_the_standard_library_to_pretend(driver: FakeDriver, gpu: NVIDIAGPU) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.driver.pretend import Pretend\n"
        "Pretend().load(compute=1.0)\n"
        "assert not {'pynvml', 'pytest', 'zeus', 'torch', 'numpy'} & set(sys.modules)\n"
        "print('begun', flush=True)\n"
        "sys.stdin.read()"
    )
    with child(driver, "-S", "-c", script):
        assert power_w(gpu) == 550.0


def test_a_load_of_a_process_that_does_not_exist_is_refused(driver: FakeDriver) -> None:
    with pytest.raises(ProcessLookupError):
        Pretend(driver.state_path).load(2**22 + 1, compute=0.5)


def test_a_process_has_its_own_driver_again_after_the_last_exit(tmp_path: Path) -> None:
    before = pynvml.nvmlLib, os.environ.get("FAKE_NVML_STATE")
    with FakeDriver(tmp_path) as driver:
        with driver:
            pynvml.nvmlInit()
        pynvml.nvmlInit()
    assert (pynvml.nvmlLib, os.environ.get("FAKE_NVML_STATE")) == before
