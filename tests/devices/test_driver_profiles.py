"""Power profiles of the fake driver itself, through the real `pynvml`: other tests rely on them."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.driver import COMPILER, FakeDriver, presets

pytestmark = pytest.mark.skipif(COMPILER is None, reason="the fake driver is written in C, and there is no compiler")


def test_power_profiles_are_a_set_of_which_conflicting_ones_are_not_enforced(tmp_path: Path) -> None:
    """Structures go by reference, and those with a version are refused with another one."""
    with FakeDriver(tmp_path, [presets.B200, presets.H200], virtual=True) as driver:
        pynvml.nvmlInit()
        handle, without = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))

        def current(gpu: Any = handle) -> tuple[list[int], ...]:
            found = pynvml.c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t()
            pynvml.nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(gpu, ctypes.byref(found))
            masks = (found.perfProfilesMask, found.requestedProfilesMask, found.enforcedProfilesMask)
            return tuple([bit for bit in range(255) if mask.mask[bit // 32] >> bit % 32 & 1] for mask in masks)

        def request(*numbers: int, clear: bool = False, version: int | None = None) -> None:
            asked = pynvml.c_nvmlWorkloadPowerProfileRequestedProfiles_v1_t()
            asked.version = asked.version if version is None else version
            for number in numbers:
                asked.requestedProfilesMask.mask[number // 32] |= 1 << number % 32
            call = "Clear" if clear else "Set"
            getattr(pynvml, f"nvmlDeviceWorkloadPowerProfile{call}RequestedProfiles")(handle, ctypes.byref(asked))

        assert current() == ([0, 1, 2, 3, 40], [], [])
        request(2, 40)
        request(3)
        assert current()[1:] == ([2, 3, 40], [2, 40]), "requests are added up, and the better priority is enforced"
        request(2, clear=True)
        assert current()[1:] == ([3, 40], [3, 40])
        update = pynvml.c_nvmlWorkloadPowerProfileUpdateProfiles_v1_t()
        update.operation = pynvml.NVML_POWER_PROFILE_OPERATION_SET_AND_OVERWRITE
        update.updateProfilesMask.mask[0] = 1 << 1
        pynvml.nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1(handle, ctypes.byref(update))
        assert current()[1:] == ([1], [1]) and driver.gpu(0).settings().power_limit_w == 640.0
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            request(7)
        with pytest.raises(pynvml.NVMLError) as mismatch:
            request(2, version=0)
        assert mismatch.value.value == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH and current()[1] == [1]
        with pytest.raises(pynvml.NVMLError_NotSupported):
            current(without)
