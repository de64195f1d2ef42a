"""Workload power profiles of an NVIDIA GPU: NVML of driver 570 and later, on boards that report them.

::

    requested  union of what all programs ask for     set and cleared here, one profile or none
    enforced   what is left after arbitration         read, as clocks are

A profile is the maker's recipe for a kind of work. Requests are a set, and several may conflict; the board then
enforces those of the better priority. This knob replaces the set, and puts the whole set that was found back.

nvidia-ml-py hands a structure on as it gets it, so each call gives it by reference. Each bit of a mask is the number of
a profile, as `nvidia-smi power-profiles` shows it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ecoshare.devices.knob import NOTHING, Cause, KnobFault, KnobSpec, Reading

POWER_PROFILE = "power_profile"

_NAMES = (
    "max_p",
    "max_q",
    "compute",
    "memory_bound",
    "network",
    "balanced",
    "llm_inference",
    "llm_training",
    "rbm",
    "dcpcie",
    "hmma_sparse",
    "hmma_dense",
    "sync_balanced",
    "hpc",
    "mig",
    "max_q_1",
    "network_bound",
    "high_throughput_inference",
    "medium_throughput_inference",
    "low_latency_inference",
    "training",
    "inference",
    "max_q_2",
    "max_q_3",
    "low_priority_background",
)
"""Names of the profiles by number, those of NVML's constants. Results keep them, so no version may change them."""

_BITS = 32
_OLD = "this driver or nvidia-ml-py is too old for power profiles"


class PowerProfile:
    """Power profile that is requested from a GPU: one, or none."""

    def __init__(self, nvml: Any, handle: Any, typed: Callable[[], AbstractContextManager[None]]) -> None:
        """Find the profiles of the GPU, and those that are requested now.

        Args:
            nvml: The module `pynvml`, initialised.
            handle: NVML's handle of the GPU.
            typed: Context manager that turns errors of the driver into `KnobFault`.

        Raises:
            KnobFault: The GPU, its driver or nvidia-ml-py has no power profiles, or the driver fails.
        """
        self._nvml, self._handle, self._typed = nvml, handle, typed
        current = self._current()
        profiles = _numbers(current.perfProfilesMask)
        if not profiles:
            raise KnobFault(Cause.NOT_SUPPORTED, "this GPU offers no power profiles")
        found = _numbers(current.requestedProfilesMask)
        named: dict[str, Reading] = {"+".join(map(_name, found)) or NOTHING: found, NOTHING: ()}
        named |= {_name(number): (number,) for number in profiles}
        self.spec = KnobSpec(POWER_PROFILE, "", (), dict.fromkeys(named, 1.0), named=named)

    def read(self) -> Reading | None:
        """Numbers of the profiles that are requested, by any program."""
        return _numbers(self._current().requestedProfilesMask)

    def enforced(self) -> tuple[str, ...]:
        """Names of the profiles that the GPU enforces.

        Raises:
            KnobFault: The driver fails.
        """
        return tuple(map(_name, _numbers(self._current().enforcedProfilesMask)))

    def write(self, values: Reading | None) -> None:
        """Request exactly these profiles.

        A driver with `nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1` replaces the requests in one step. An older one
        takes two. The new profiles are added first, so a refusal has changed nothing.

        Raises:
            KnobFault: The profiles were not requested. The cause is `FAILED` if one of two steps was done.
        """
        assert values is not None, "there is always a set of requested profiles, perhaps an empty one"
        now = _numbers(self._current().requestedProfilesMask)
        if now == values or self._overwrite(now, values):
            return
        if added := tuple(sorted(set(values) - set(now))):
            self._request("Set", added)
        if cleared := tuple(sorted(set(now) - set(values))):
            try:
                self._request("Clear", cleared)
            except KnobFault as fault:
                raise KnobFault(Cause.FAILED if added else fault.cause, str(fault), fault.remedy) from fault

    def _overwrite(self, now: Reading, values: Reading) -> bool:
        """Replace the requests in one step; False if the driver is older than 590, and nothing was done."""
        function, nvml = "nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1", self._nvml
        if not hasattr(nvml, function):
            return False
        update = nvml.c_nvmlWorkloadPowerProfileUpdateProfiles_v1_t()
        # NVML does not say that an empty set may overwrite, so the last profiles are cleared by number.
        update.operation = (
            nvml.NVML_POWER_PROFILE_OPERATION_SET_AND_OVERWRITE if values else nvml.NVML_POWER_PROFILE_OPERATION_CLEAR
        )
        _fill(update.updateProfilesMask, values or now)
        return self._call(function, update)

    def _request(self, verb: str, numbers: Reading) -> None:
        request = self._nvml.c_nvmlWorkloadPowerProfileRequestedProfiles_v1_t()
        _fill(request.requestedProfilesMask, numbers)
        if not self._call(f"nvmlDeviceWorkloadPowerProfile{verb}RequestedProfiles", request):
            raise KnobFault(Cause.NOT_SUPPORTED, _OLD)

    def _current(self) -> Any:
        make = getattr(self._nvml, "c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t", None)
        current = make() if make is not None else None
        try:
            if current is not None and self._call("nvmlDeviceWorkloadPowerProfileGetCurrentProfiles", current):
                return current
        except KnobFault as fault:
            if fault.cause is Cause.NOT_SUPPORTED:
                raise KnobFault(fault.cause, "this GPU has no power profiles") from fault
            raise
        raise KnobFault(Cause.NOT_SUPPORTED, _OLD)

    def _call(self, function: str, structure: Any) -> bool:
        """Call a function of NVML with a structure; False if the driver or nvidia-ml-py lacks the function.

        Raises:
            KnobFault: The driver refuses or fails.
        """
        call = getattr(self._nvml, function, None)
        if call is None:
            return False
        try:
            with self._typed():
                call(self._handle, ctypes.byref(structure))
        except KnobFault as fault:
            if isinstance(fault.__cause__, self._nvml.NVMLError_FunctionNotFound):
                return False
            raise
        return True


def _numbers(mask: Any) -> Reading:
    words = list(mask.mask)
    return tuple(
        float(_BITS * word + bit) for word in range(len(words)) for bit in range(_BITS) if words[word] >> bit & 1
    )


def _fill(mask: Any, numbers: Reading) -> None:
    for number in map(int, numbers):
        mask.mask[number // _BITS] |= 1 << number % _BITS


def _name(number: float) -> str:
    return _NAMES[int(number)] if number < len(_NAMES) else f"profile_{number:.0f}"
