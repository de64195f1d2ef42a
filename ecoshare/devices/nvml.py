"""Reads the state of GPUs from NVIDIA's driver; `nvidia_knobs.py` sets them.

Errors of NVML and of zeus become `UnfitEnvironment`. A machine without the driver has no GPUs, which is no error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from ecoshare.common import machine_memory
from ecoshare.devices.counter_meter import CounterMeter
from ecoshare.devices.nvml_calls import handle_of, running_processes, temperature_c
from ecoshare.devices.nvml_health import GpuHealth
from ecoshare.devices.vendor import DeviceHealth, DeviceState
from ecoshare.devices.zeus_knobs import reported
from ecoshare.errors import UnfitEnvironment

_LOOK_PART_OF_THE_TIME, _LOOKS = ((8, 0), (9, 0), (10, 0), (10, 3)), 0.25
"""Compute capabilities of boards with a sensor that looks at the power for 25 ms of each 100 ms, and that part.

Seen on A100 and H100, and assumed for their successors. Source: Yang, Adamek and Armour, "Part-time Power Measurements:
nvidia-smi's Lack of Attention", arXiv 2312.02741.
"""


@dataclass(frozen=True, slots=True)
class NvmlGpu:
    """One GPU as the driver describes it.

    Attributes:
        index: Number in the driver and in `nvidia-smi`; CUDA may count differently.
        uuid: Permanent name.
        model: Name that the maker gives the GPU.
        memory_bytes: Size of the device memory. A GPU without memory of its own (GB10, integrated ones) has that of the
            machine.
        free_bytes: Free device memory.
        driver: Version of the driver.
        cuda: Newest version of CUDA that the driver runs; None if it does not tell.
        capability: Compute capability; None if the driver does not tell it.
        compute_mode: `default`, `exclusive_process` or `prohibited`.
        default_limit_w: Default power limit (W); None if the board does not report it.
        unfit: Reason why it cannot be shared, in words; empty if it can.
    """

    index: int
    uuid: str
    model: str
    memory_bytes: int
    free_bytes: int
    driver: str
    cuda: tuple[int, int] | None
    capability: tuple[int, int] | None
    compute_mode: str
    default_limit_w: float | None
    unfit: str


def gpus() -> list[NvmlGpu]:
    """All GPUs that the driver shows, in its order; empty without a driver.

    A GPU that is lost is left out, and so is one that this process may not use: CUDA does not count it either. One that
    does not tell what is needed to share it is unfit, and keeps no other GPU from being used.

    Raises:
        UnfitEnvironment: The driver fails.
    """
    with library() as nvml:
        if nvml is None:
            return []
        driver = str(nvml.nvmlSystemGetDriverVersion())
        found = []
        for index in range(nvml.nvmlDeviceGetCount()):
            with contextlib.suppress(nvml.NVMLError_GpuIsLost, nvml.NVMLError_NoPermission):
                found.append(_gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(index), index, driver))
        return found


def power_w(uuid: str) -> float | None:
    """Present power draw of a GPU (W); None if the board does not report it.

    Raises:
        UnfitEnvironment: There is no driver, or no such GPU.
    """
    with library() as nvml:
        if nvml is None:
            raise UnfitEnvironment("there is no NVIDIA driver on this machine")
        handle = handle_of(nvml, uuid)
        watts: float | None = _optional(nvml, lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000)
        return watts


class NvmlDevice:
    """One GPU that is read repeatedly. The driver's library stays open until `close`."""

    def __init__(self, uuid: str) -> None:
        """Open the GPU with this UUID.

        Raises:
            UnfitEnvironment: There is no driver, or no such GPU.
        """
        import pynvml
        from zeus.device.gpu.nvidia import NVIDIAGPU

        self._nvml, self._told = pynvml, partial(reported, _typed)
        with _typed():
            pynvml.nvmlInit()
            try:
                self._handle = handle_of(pynvml, uuid)
                self._zeus = NVIDIAGPU(pynvml.nvmlDeviceGetIndex(self._handle))
                self._health = GpuHealth(pynvml, uuid, self._handle)
            except BaseException:
                pynvml.nvmlShutdown()
                raise

    def health(self) -> DeviceHealth:
        """Whether the GPU still works; see `GpuHealth`."""
        return self._health.look()

    def close(self) -> None:
        """Release the driver's library."""
        with contextlib.suppress(UnfitEnvironment), _typed():
            self._nvml.nvmlShutdown()

    def open_meter(self) -> CounterMeter:
        """Meter that reads the GPU's energy counter.

        Raises:
            MeterFault: This GPU has no counter, or the counter stands still.
            UnfitEnvironment: The driver fails.
        """
        capability = self._told(lambda: self._nvml.nvmlDeviceGetCudaComputeCapability(self._handle))
        looks = _LOOKS if capability is not None and tuple(capability) in _LOOK_PART_OF_THE_TIME else 1.0
        return CounterMeter("nvml", self.energy_j, looks).open()

    def energy_j(self) -> float:
        """Joules since the driver was loaded, for everything on the board.

        Raises:
            UnfitEnvironment: The GPU is older than Volta and so has no counter, or it does not answer.
        """
        with _typed():
            if not self._zeus.supports_get_total_energy_consumption():
                raise UnfitEnvironment("this GPU is older than Volta and has no energy counter")
            return float(self._zeus.get_total_energy_consumption()) / 1000

    def state(self) -> DeviceState:
        """Present state of the GPU; a value that it does not report is None."""
        nvml, handle = self._nvml, self._handle
        use = self._told(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        memory = self._told(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        return DeviceState(
            power_w=self._told(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            gpu_clock_mhz=self._told(lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))),
            memory_clock_mhz=self._told(lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM))),
            temperature_c=self._told(lambda: temperature_c(nvml, handle)),
            busy=use.gpu / 100 if use is not None else None,
            memory_busy=use.memory / 100 if use is not None else None,
            memory_bytes=int(memory.used) if memory is not None else None,
        )

    def power_limit_w(self) -> float | None:
        """Power limit in force (W), no matter which program set it; None if the GPU does not report it."""
        limit_mw = self._told(lambda: self._nvml.nvmlDeviceGetEnforcedPowerLimit(self._handle))
        return float(limit_mw) / 1000 if limit_mw is not None else None

    def processes(self) -> dict[int, int]:
        """Device memory (bytes) by process number, context and libraries included.

        Processes that the driver hides are left out. Inside a container the driver's process numbers may be those of
        the host.
        """
        found = self._told(lambda: running_processes(self._nvml, self._handle))
        return {each.pid: int(each.usedGpuMemory) for each in found or () if each.usedGpuMemory is not None}


@contextmanager
def _typed() -> Iterator[None]:
    """Turn errors of the driver and of zeus into `UnfitEnvironment`."""
    import pynvml
    from zeus.device.exception import ZeusBaseGPUError

    try:
        yield
    except (pynvml.NVMLError, ZeusBaseGPUError) as error:
        raise UnfitEnvironment(f"the NVIDIA driver failed: {error}", "see `nvidia-smi`") from error


def _gpu(nvml: Any, handle: Any, index: int, driver: str) -> NvmlGpu:
    mode, model, unfit = "default", "a GPU", ""
    memory_bytes = free_bytes = 0
    limit_w = None
    try:
        model = str(nvml.nvmlDeviceGetName(handle))
        if _optional(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle)[0]):
            # The driver may forbid to read its other values.
            unfit = "is cut into MIG instances, which ecoshare cannot share yet"
        else:
            modes = {
                nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive_process",
                nvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
            }
            mode = modes.get(_optional(nvml, lambda: nvml.nvmlDeviceGetComputeMode(handle)), "default")
            unfit = "is in compute mode `prohibited`: no program may use it" if mode == "prohibited" else ""
            memory_bytes, free_bytes = _memory_bytes(nvml, handle)
            limit_w = _optional(nvml, lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000)
    except nvml.NVMLError_GpuIsLost:
        raise
    except nvml.NVMLError as error:
        unfit = f"does not tell what a run must know of it: the NVIDIA driver says {str(error)!r}"
    cuda, capability = _cuda(nvml), _told(nvml, lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle))
    uuid = str(nvml.nvmlDeviceGetUUID(handle))
    return NvmlGpu(index, uuid, model, memory_bytes, free_bytes, driver, cuda, capability, mode, limit_w, unfit)


def _cuda(nvml: Any) -> tuple[int, int] | None:
    """Newest version of CUDA that the driver runs. The question does not initialise CUDA."""
    number = _told(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2)
    return (number // 1000, number % 1000 // 10) if number else None


def _told(nvml: Any, read: Any) -> Any:
    """Result of `read`, or None if it is not to be had: a run can do without it."""
    try:
        return read()
    except nvml.NVMLError_GpuIsLost:
        raise
    except nvml.NVMLError:
        return None


def _memory_bytes(nvml: Any, handle: Any) -> tuple[int, int]:
    """Whole and free memory. A GPU that has none of its own supports no such question."""
    if (memory := _optional(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))) is None:
        return machine_memory.total_bytes(), machine_memory.available_bytes()
    return int(memory.total), int(memory.free)


def _optional(nvml: Any, read: Any) -> Any:
    """Result of `read`, or None if this board does not support it."""
    try:
        return read()
    except nvml.NVMLError_NotSupported:
        return None


@contextmanager
def library() -> Iterator[Any]:
    """Context manager: the initialised library, or None without a driver."""
    import pynvml  # the module of nvidia-ml-py

    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        yield None
        return
    except pynvml.NVMLError as error:
        raise UnfitEnvironment(f"the NVIDIA driver does not answer: {error}", "see `nvidia-smi`") from error
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        raise UnfitEnvironment(f"the NVIDIA driver failed: {error}", "see `nvidia-smi`") from error
    finally:
        pynvml.nvmlShutdown()
