"""Health of an NVIDIA GPU: whether it is lost, has new memory errors, or is as hot as the board allows.

A GPU that slows down because it is warm is healthy, and measurements see its clocks. A query without an answer (not
supported, a time-out, an error without a name) says nothing about health.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ecoshare.common.plural import counted
from ecoshare.devices.vendor import DeviceHealth


class GpuHealth:
    """Health of one GPU since this object was made."""

    def __init__(self, nvml: Any, uuid: str, handle: Any) -> None:
        """Remember the memory errors that the GPU has had before.

        Args:
            nvml: The library, initialised.
            uuid: UUID of the GPU.
            handle: Handle of the GPU.
        """
        self._nvml, self._uuid, self._handle = nvml, uuid, handle
        self._gone = (nvml.NVMLError_GpuIsLost, nvml.NVMLError_ResetRequired)
        try:
            self._errors_before = self._ecc_errors(handle) or 0
            self._shutdown_c = self._told(
                lambda: nvml.nvmlDeviceGetTemperatureThreshold(handle, nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN)
            )
        except self._gone:  # the first look says so, too
            self._errors_before, self._shutdown_c = 0, None

    def look(self) -> DeviceHealth:
        """Present health. The cost is a few queries of the driver."""
        nvml = self._nvml
        try:
            handle = self._present_handle()
            celsius = self._told(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
            errors = self._ecc_errors(handle)
            rows = self._told(lambda: nvml.nvmlDeviceGetRemappedRows(handle))
        except nvml.NVMLError_NotFound:
            return DeviceHealth("the driver does not show it any more")
        except self._gone as error:
            return DeviceHealth(f"the driver says: {error}")
        except nvml.NVMLError:
            return DeviceHealth()
        if errors is not None and errors > self._errors_before:
            return DeviceHealth(f"{counted(errors - self._errors_before, 'uncorrected memory error')} (ECC)")
        if celsius is not None and self._shutdown_c and celsius >= self._shutdown_c:
            return DeviceHealth(f"it is at {celsius} °C, and turns itself off at {self._shutdown_c} °C")
        return DeviceHealth(note=_rows_in_words(rows))

    def _present_handle(self) -> Any:
        """Handle of the GPU. While any GPU of the machine is lost, the driver may refuse to look up the others."""
        nvml = self._nvml
        try:
            return nvml.nvmlDeviceGetHandleByUUID(self._uuid)
        except nvml.NVMLError_NotFound:
            raise
        except nvml.NVMLError:
            return self._handle

    def _ecc_errors(self, handle: Any) -> int | None:
        """Uncorrected memory errors since the driver was loaded; None if the board does not count them."""
        nvml = self._nvml
        count = self._told(
            lambda: nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
        )
        return None if count is None else int(count)

    def _told(self, read: Callable[[], Any]) -> Any:
        """Result of a query; None if the driver does not answer it, unless the GPU is gone."""
        try:
            return read()
        except self._gone:
            raise
        except self._nvml.NVMLError:
            return None


def _rows_in_words(rows: Any) -> str:
    if rows is None:
        return ""
    _, _, pending, failed = rows
    if failed:
        return "a row of its memory could not be remapped: the GPU should be replaced"
    return "a row of its memory is remapped when the GPU is reset next" if pending else ""
