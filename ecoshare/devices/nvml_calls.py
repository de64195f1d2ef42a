"""Calls of NVML that do not do what their callers want, or have another name in an older driver."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any


def handle_of(nvml: Any, uuid: str) -> Any:
    """Handle of the GPU with this UUID, also while another GPU of the machine is lost.

    NVML's own look-up asks one GPU after the other, and ends with the error of the first that does not answer.

    Args:
        nvml: The library, initialised.
        uuid: UUID of the GPU.

    Raises:
        nvml.NVMLError: There is no such GPU, it does not answer, or another one does not answer and may be it.
    """
    try:
        return nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError_NotFound:
        raise
    except nvml.NVMLError:
        for index in range(nvml.nvmlDeviceGetCount()):
            with contextlib.suppress(nvml.NVMLError):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                if str(nvml.nvmlDeviceGetUUID(handle)) == uuid:
                    return handle
        raise


def temperature_c(nvml: Any, handle: Any) -> float:
    """Temperature of a GPU (degrees Celsius), also with a driver before 550.

    Raises:
        nvml.NVMLError: The GPU does not report it.
    """
    return float(
        _either(
            nvml,
            lambda: nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU),
            lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        )
    )


def clock_reasons(nvml: Any, handle: Any) -> int:
    """Bits of the reasons for the present clock of a GPU, also with a driver before 535.

    Raises:
        nvml.NVMLError: The GPU does not report them.
    """
    return int(
        _either(
            nvml,
            lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
            lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        )
    )


def running_processes(nvml: Any, handle: Any) -> list[Any]:
    """Processes with a context on a GPU, also with a driver before 510.

    Raises:
        nvml.NVMLError: The GPU does not report them.
    """
    return list(
        _either(
            nvml,
            lambda: nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle),
            lambda: nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle),
        )
    )


def _either(nvml: Any, call: Callable[[], Any], older: Callable[[], Any]) -> Any:
    """Result of a call, or of the one that an older library has in its place."""
    try:
        return call()
    except nvml.NVMLError_FunctionNotFound:
        return older()
