"""Finds a GPU by its UUID, also while another GPU of the machine is lost.

NVML's own look-up asks one GPU after the other, and ends with the error of the first that does not answer.
"""

from __future__ import annotations

import contextlib
from typing import Any


def handle_of(nvml: Any, uuid: str) -> Any:
    """Handle of the GPU with this UUID.

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
