"""Reads what NVIDIA's driver tells of GPUs; what sets them is in `nvidia_knobs.py`.

NVML errors, and those that zeus makes of them, become `UnfitEnvironment`; a machine without the driver has no GPUs,
which is no error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ecoshare.errors import UnfitEnvironment


@dataclass(frozen=True, slots=True)
class NvmlGpu:
    """One GPU as the driver describes it.

    Attributes:
        index: The driver's number, which `nvidia-smi` shows; CUDA may count differently.
        uuid: The name that never changes.
        compute_mode: `default`, `exclusive_process` or `prohibited`.
        mig: Whether it is cut into instances.
        default_limit_w: Its power limit when nobody changed it; None where the board does not say.
    """

    index: int
    uuid: str
    model: str
    memory_bytes: int
    free_bytes: int
    driver: str
    compute_mode: str
    mig: bool
    default_limit_w: float | None


def gpus() -> list[NvmlGpu]:
    """All GPUs that the driver shows, in its order; empty without a driver.

    Raises:
        UnfitEnvironment: There is a driver, and it fails.
    """
    with _nvml() as nvml:
        if nvml is None:
            return []
        driver = str(nvml.nvmlSystemGetDriverVersion())
        return [_gpu(nvml, index, driver) for index in range(nvml.nvmlDeviceGetCount())]


def power_w(uuid: str) -> float | None:
    """Present power draw of a GPU, watts; None where the board does not say.

    Raises:
        UnfitEnvironment: There is no such GPU.
    """
    with _nvml() as nvml:
        if nvml is None:
            raise UnfitEnvironment("there is no NVIDIA driver on this machine")
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        watts: float | None = _optional(nvml, lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000)
        return watts


@dataclass(frozen=True, slots=True)
class GpuState:
    """A GPU at one moment; None where the board does not say.

    Attributes:
        power_w: Drawn now, averaged by the board over its own window.
        busy: Part of the driver's last sample period (1 s or less) in which a kernel ran, 0 to 1.
        memory_busy: Part in which device memory was read or written, 0 to 1.
    """

    power_w: float | None
    gpu_clock_mhz: float | None
    memory_clock_mhz: float | None
    temperature_c: float | None
    busy: float | None
    memory_busy: float | None
    memory_bytes: int | None


class OpenGpu:
    """One GPU to be read again and again; keeps the driver's library open until it is closed."""

    def __init__(self, uuid: str) -> None:
        """The GPU of this name.

        Raises:
            UnfitEnvironment: There is no driver or no such GPU.
        """
        import pynvml
        from zeus.device.gpu.nvidia import NVIDIAGPU

        self._nvml = pynvml
        with _typed():
            pynvml.nvmlInit()
            try:
                self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
                self._zeus = NVIDIAGPU(pynvml.nvmlDeviceGetIndex(self._handle))
            except BaseException:
                pynvml.nvmlShutdown()
                raise

    def close(self) -> None:
        """Let go of the driver's library."""
        with contextlib.suppress(UnfitEnvironment), _typed():
            self._nvml.nvmlShutdown()

    def energy_j(self) -> float:
        """Joules since the driver was loaded, everything on the board included.

        Raises:
            UnfitEnvironment: The GPU has no such counter (before Volta), or does not answer.
        """
        with _typed():
            if not self._zeus.supports_get_total_energy_consumption():
                raise UnfitEnvironment("this GPU is older than Volta and has no energy counter")
            return float(self._zeus.get_total_energy_consumption()) / 1000

    def state(self) -> GpuState:
        """What the GPU does now; what it does not tell, or fails to, is None."""
        nvml, handle = self._nvml, self._handle
        use = self._told(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        memory = self._told(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        return GpuState(
            power_w=self._told(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            gpu_clock_mhz=self._told(lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))),
            memory_clock_mhz=self._told(lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM))),
            temperature_c=self._told(lambda: float(self._zeus.get_gpu_temperature())),
            busy=use.gpu / 100 if use is not None else None,
            memory_busy=use.memory / 100 if use is not None else None,
            memory_bytes=int(memory.used) if memory is not None else None,
        )

    def power_limit_w(self) -> float | None:
        """The limit in force, whoever set it."""
        limit_mw = self._told(lambda: self._nvml.nvmlDeviceGetEnforcedPowerLimit(self._handle))
        return float(limit_mw) / 1000 if limit_mw is not None else None

    def processes(self) -> dict[int, int]:
        """Device memory of each process, its context and libraries included; without those that the driver hides.

        Inside a container the driver's process numbers may be those of the host.
        """
        found = self._told(lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle))
        return {each.pid: int(each.usedGpuMemory) for each in found or () if each.usedGpuMemory is not None}

    @staticmethod
    def _told(read: Callable[[], Any]) -> Any:
        try:
            with _typed():
                return read()
        except UnfitEnvironment:
            return None


@contextmanager
def _typed() -> Iterator[None]:
    """Turn errors of the driver, met directly or through zeus, into ours."""
    import pynvml
    from zeus.device.exception import ZeusBaseGPUError

    try:
        yield
    except (pynvml.NVMLError, ZeusBaseGPUError) as error:
        raise UnfitEnvironment(f"the NVIDIA driver failed: {error}", "see `nvidia-smi`") from error


def _gpu(nvml: Any, index: int, driver: str) -> NvmlGpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    modes = {
        nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive_process",
        nvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
    }
    return NvmlGpu(
        index=index,
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        model=str(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=memory.total,
        free_bytes=memory.free,
        driver=driver,
        compute_mode=modes.get(nvml.nvmlDeviceGetComputeMode(handle), "default"),
        mig=bool(_optional(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle)[0])),
        default_limit_w=_optional(nvml, lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000),
    )


def _optional(nvml: Any, read: Any) -> Any:
    """What `read` gives, or None where this board has no such thing."""
    try:
        return read()
    except nvml.NVMLError_NotSupported:
        return None


@contextmanager
def _nvml() -> Iterator[Any]:
    """The initialised library; None where there is no driver."""
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
