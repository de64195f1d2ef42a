"""Faults of the driver, by name.

Each is a pattern of function names (as in `fnmatch`, with alternatives `@(a|b)`) and the behaviour of these functions.
Values of `nvmlDeviceGetFieldValues` fail one by one, under the names of their fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tests.driver import state

_PROFILES = "nvmlDeviceWorkloadPowerProfile"
SETTERS = f"@(nvmlDevice@(Set|Reset)*|{_PROFILES}@(Set|Clear|Update)*)"
ENERGY = "@(nvmlDeviceGetTotalEnergyConsumption|NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION)"
_OF_ONE_GPU = "@(nvmlDevice!(GetCount_v2|GetHandleByUUID)|NVML_FI_DEV_*)"
_INIT = "nvmlInit*"
_NOT_SUPPORTED, _NO_PERMISSION, _NOT_LOADED, _TIMEOUT, _LOST, _MISMATCH, _UNKNOWN = 3, 4, 9, 10, 15, 18, 999
_NO_FUNCTION, _NOT_FOUND, _RESET_REQUIRED = 13, 6, 16


@dataclass(frozen=True)
class _Effect:
    functions: str
    code: int = 0
    kind: int = state.FAULT_RETURN


class Fault(Enum):
    """Kind of fault, with its functions unless a test names others."""

    NO_PERMISSION = _Effect(SETTERS, _NO_PERMISSION)
    INEFFECTIVE = _Effect(SETTERS, kind=state.FAULT_IGNORE)
    """Setters report success and change nothing."""
    NO_ENERGY_COUNTER = _Effect(ENERGY, _NOT_SUPPORTED)
    NO_LOCKED_CLOCKS = _Effect("nvmlDevice@(Set|Reset)GpuLockedClocks", _NOT_SUPPORTED)
    NO_MEMORY_CLOCKS = _Effect("nvmlDevice@(Set|Reset)MemoryLockedClocks", _NOT_SUPPORTED)
    NO_PROFILE_FUNCTIONS = _Effect(f"{_PROFILES}*", _NO_FUNCTION)
    """The library seems to lack the symbols, as that of a driver before 570 does."""
    NO_PROFILE_UPDATE = _Effect(f"{_PROFILES}UpdateProfiles_v1", _NO_FUNCTION)
    """The library seems to be that of a driver from 570 to 580."""
    NO_UTILISATION = _Effect("nvmlDeviceGetUtilizationRates", _NOT_SUPPORTED)
    NO_POWER = _Effect("@(nvmlDeviceGetPowerUsage|NVML_FI_DEV_POWER_*)", _NOT_SUPPORTED)
    NOT_SUPPORTED = _Effect(_OF_ONE_GPU, _NOT_SUPPORTED)
    GPU_LOST = _Effect(_OF_ONE_GPU, _LOST)
    NOT_FOUND = _Effect(_OF_ONE_GPU, _NOT_FOUND)
    RESET_REQUIRED = _Effect(_OF_ONE_GPU, _RESET_REQUIRED)
    TIMEOUT = _Effect(_OF_ONE_GPU, _TIMEOUT)
    UNKNOWN = _Effect(_OF_ONE_GPU, _UNKNOWN)
    COUNTER_RESET = _Effect(ENERGY, kind=state.FAULT_RESET)
    """Energy starts again at 0 with the reading that meets this fault; use it with `times=1`."""
    COUNTER_STALE = _Effect(ENERGY, kind=state.FAULT_STALE)
    """Every reading gives the value of the last one before the fault."""
    HANGS = _Effect(_OF_ONE_GPU, kind=state.FAULT_HANG)
    """Calls do not return before the fault is removed."""
    DRIVER_NOT_LOADED = _Effect(_INIT, _NOT_LOADED)
    VERSION_MISMATCH = _Effect(_INIT, _MISMATCH)


def place(page: state.Page, fault: Fault, gpu: int | None, functions: str | None, first: int, times: int) -> None:
    """Add a fault to the state.

    Raises:
        BufferError: There are 16 already.
    """
    free = next((each for each in page.faults if each.kind == 0), None)
    if free is None:
        raise BufferError(f"there are {state.FAULTS} faults already")
    effect = fault.value
    free.functions = (functions or effect.functions).encode()
    free.kind, free.code = effect.kind, effect.code
    free.gpu = -1 if gpu is None else gpu
    free.first, free.times, free.calls, free.struck = first, times, 0, 0
