"""The one place that talks to NVIDIA's driver. Reads only.

NVML errors become `UnfitEnvironment`; a machine without the driver has no GPUs, which is no error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ecoshare.errors import UnfitEnvironment


@dataclass(frozen=True, slots=True)
class Gpu:
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


def gpus() -> list[Gpu]:
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


def _gpu(nvml: Any, index: int, driver: str) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    modes = {
        nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive_process",
        nvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
    }
    return Gpu(
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
