"""Knobs of an NVIDIA GPU, set through zeus: as root, or through its daemon for other users (`ZEUSD_SOCK_PATH`).

NVML can lock and reset clocks, but it has no getter for the locked range. So ecoshare locks a clock only if it looks
unlocked (`looks_unlocked`), and restores it with a reset.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ecoshare.base.class_profile import POWER_LIMIT
from ecoshare.devices.knob import (
    GPU_CLOCK,
    MEMORY_CLOCK,
    NOTHING,
    UNLOCKED,
    Access,
    Cause,
    Clocks,
    ClocksMhz,
    DeviceKnob,
    KnobFault,
    KnobSpec,
    Reading,
)
from ecoshare.devices.nvidia.nvml import clock_reasons, handle_of, temperature_c
from ecoshare.devices.zeus_knobs import ZeusPowerLimit, cause_of, reported
from ecoshare.errors import UnfitEnvironment

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
    """Power profile that is requested from a GPU: one, or none.

    ::

        requested  union of what all programs ask for     set and cleared here, one profile or none
        enforced   what is left after arbitration         read, as clocks are

    A profile is the maker's recipe for a kind of work. Requests are a set, and several may conflict; the board then
    enforces those of the better priority. This knob replaces the set, and puts the whole set that was found back.

    nvidia-ml-py hands a structure on as it gets it, so each call gives it by reference. Each bit of a mask is the
    number of a profile, as `nvidia-smi power-profiles` shows it.
    """

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
        named: dict[str, Reading] = {"+".join(map(_profile_name, found)) or NOTHING: found, NOTHING: ()}
        named |= {_profile_name(number): (number,) for number in profiles}
        self.spec = KnobSpec(POWER_PROFILE, "", (), dict.fromkeys(named, 1.0), named=named)

    def read(self) -> Reading | None:
        """Numbers of the profiles that are requested, by any program."""
        return _numbers(self._current().requestedProfilesMask)

    def enforced(self) -> tuple[str, ...]:
        """Names of the profiles that the GPU enforces.

        Raises:
            KnobFault: The driver fails.
        """
        return tuple(map(_profile_name, _numbers(self._current().enforcedProfilesMask)))

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


def _profile_name(number: float) -> str:
    return _NAMES[int(number)] if number < len(_NAMES) else f"profile_{number:.0f}"


NAMES = (GPU_CLOCK, MEMORY_CLOCK, POWER_LIMIT, POWER_PROFILE)

_VOLTA, _AMPERE = 5, 7  # nvmlDeviceArchitecture: the first with locks of GPU clocks, and of memory clocks
_LOOKS, _LOOK_S = 8, 0.05
_DRIFT = 0.1
"""Largest relative change of a loaded clock by heat. A larger one from check to check may be a lock that has come."""

_COMPUTES_AT = 2
"""Performance state in which a GeForce board computes: its memory clock is a step below the highest."""

_IDLE = 0x1
_USER_CLOCKS = 0x2
"""Bits of the reasons for the present clock: an idle GPU; application clocks or a lock."""

_THROTTLES = {
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x20: "temperature",
    0x40: "temperature (hardware)",
    0x80: "power brake",
}
"""Bits of `clock_reasons` for causes that keep a clock below the requested one."""

_BOARD_LIMITS = 0x200 | 0x400
"""Bits for the limits of the board and of its voltage. Boards of the GeForce kind show them at full boost, which is
below the highest clock of their table: an RTX 4090 runs at 2,655 of 3,105 MHz. So they are no throttling."""

_REMEDIES = {
    Cause.NO_PERMISSION: "it takes CAP_SYS_ADMIN on the machine, which root of a container lacks without `--cap-add "
    "SYS_ADMIN`; or run zeusd with a socket that your group may write, and set ZEUSD_SOCK_PATH",
    Cause.UNREACHABLE: "see whether zeusd runs; `ecoshare restore` puts back what was set through it",
    Cause.LOST: "see `nvidia-smi` and `dmesg`; a GPU that fell off the bus needs a restart of the machine",
}


class GpuKnobs:
    """All knobs of one GPU. The driver's library stays open until `close`."""

    def __init__(self, uuid: str) -> None:
        """Open the GPU with this UUID and find its knobs.

        Raises:
            UnfitEnvironment: There is no driver, there is no such GPU, or the driver fails.
        """
        import pynvml

        self._nvml, self.uuid, self._told = pynvml, uuid, partial(reported, typed)
        try:
            with typed():
                pynvml.nvmlInit()
        except KnobFault as fault:
            raise UnfitEnvironment(str(fault), fault.remedy) from fault
        try:
            with typed():
                self.handle = handle_of(pynvml, uuid)
                self.model = str(pynvml.nvmlDeviceGetName(self.handle))
                index = pynvml.nvmlDeviceGetIndex(self.handle)
            self.access, self._gpu, self._daemon = _open(pynvml, index)
            self.clocks_mhz = self._supported_clocks()
        except KnobFault as fault:
            pynvml.nvmlShutdown()
            raise UnfitEnvironment(str(fault), fault.remedy) from fault
        except BaseException:
            pynvml.nvmlShutdown()
            raise
        self._loaded_mhz: set[float] = set()  # GPU clocks under load for which there was no reason
        self.missing: dict[str, str] = {}
        found = [each for name in NAMES if (each := self._find(name)) is not None]
        self.knobs: tuple[DeviceKnob, ...] = tuple(found)
        self._profile = next((each for each in found if isinstance(each, PowerProfile)), None)

    def close(self) -> None:
        """Release the driver's library and the connection to the daemon."""
        if self._daemon is not None:
            self._daemon.close()
        with _quiet():
            self._nvml.nvmlShutdown()

    def clocks(self) -> Clocks:
        """Present clocks; a value that the GPU does not report is None."""
        nvml, handle = self._nvml, self.handle
        bits = self._told(lambda: clock_reasons(nvml, handle)) or 0
        return Clocks(
            gpu_mhz=self._told(lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))),
            memory_mhz=self._told(lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM))),
            throttles=tuple(words for bit, words in _THROTTLES.items() if bits & bit),
            temperature_c=self._told(lambda: temperature_c(nvml, handle)),
            power_profiles=self._told(self._profile.enforced) if self._profile is not None else None,
        )

    def looks_unlocked(self, knob: str) -> bool:
        """Whether a clock was seen at its maximum under load; False if there is merely no sign of a lock.

        The result is False for a GPU clock that something throttles, that the board itself limits, or that has moved
        by more than a step, as none does that is locked; and for a memory clock that is a step below the highest on a
        board of the GeForce kind that computes in P2. Application clocks then have their defaults, and no reason for
        the present clock names a user's choice.

        Raises:
            KnobFault: The clock looks locked. Or it cannot be told: the GPU is idle, throttles the memory clock, or is
                of the GeForce kind, and its clock has not moved yet.
        """
        nvml, handle = self._nvml, self.handle
        remedy = "`ecoshare tune --assume-unlocked` if no program has locked it"
        now = self._told(lambda: nvml.nvmlDeviceGetApplicationsClock(handle, nvml.NVML_CLOCK_GRAPHICS))
        usual = self._told(lambda: nvml.nvmlDeviceGetDefaultApplicationsClock(handle, nvml.NVML_CLOCK_GRAPHICS))
        if now is not None and usual is not None and now != usual:
            raise KnobFault(Cause.LOCKED, f"application clocks are set: {now} MHz, by default {usual} MHz", remedy)
        steps = sorted(self.clocks_mhz) if knob == MEMORY_CLOCK else self.clocks_mhz[max(self.clocks_mhz)]
        step_mhz = steps[-1] - steps[-2] if len(steps) > 1 else 0.0
        enough_mhz = steps[-1] - (step_mhz if knob == GPU_CLOCK else 0.0)
        seen_mhz, all_mhz, throttled, boosted = 0.0, set[float](), False, False
        for look in range(_LOOKS):
            if look:
                time.sleep(_LOOK_S)
            bits = self._told(lambda: clock_reasons(nvml, handle)) or 0
            if bits & _IDLE:
                continue  # an idle GPU proves nothing: locked clocks may be at their maximum, unlocked clocks below it
            clocks = self.clocks()
            if (now_mhz := clocks.memory_mhz if knob == MEMORY_CLOCK else clocks.gpu_mhz) is None:
                continue
            all_mhz.add(now_mhz)
            seen_mhz = max(all_mhz)
            if seen_mhz >= enough_mhz:
                return True
            if bits & _USER_CLOCKS:
                raise KnobFault(Cause.LOCKED, f"another program has set {knob}: {seen_mhz:.0f} MHz", remedy)
            throttled = throttled or any(bits & bit for bit in _THROTTLES)
            boosted = boosted or bool(bits & _BOARD_LIMITS)
        if knob == GPU_CLOCK and (throttled or boosted or self._moves(all_mhz, step_mhz)):
            return False
        is_a_step_below = knob == MEMORY_CLOCK and usual is None and seen_mhz in steps[-2:-1]
        if is_a_step_below and self._told(lambda: nvml.nvmlDeviceGetPerformanceState(handle)) == _COMPUTES_AT:
            return False
        if throttled or not seen_mhz:
            why = "throttled" if throttled else "idle"
            raise KnobFault(Cause.UNTOLD, f"the GPU is {why}: whether {knob} is locked cannot be told", remedy)
        stays = f"{knob} stays at {seen_mhz:.0f} MHz of {steps[-1]:.0f} MHz under load, and nothing throttles it"
        if knob == GPU_CLOCK and usual is None:  # a board of the GeForce kind, which never reaches its table
            raise KnobFault(Cause.UNTOLD, f"{stays}: whether it is locked cannot be told before it moves", remedy)
        raise KnobFault(Cause.LOCKED, f"{stays}: it looks locked", remedy)

    def _moves(self, all_mhz: set[float], step_mhz: float) -> bool:
        """Whether the GPU clock under load moves by more than a step now, or has moved a little since the first check.

        Args:
            all_mhz: Clocks (MHz) that were seen now.
            step_mhz: Step (MHz) of the table. A locked clock may show the one below, too.
        """
        if max(all_mhz, default=0.0) - min(all_mhz, default=0.0) > step_mhz:
            return True
        self._loaded_mhz |= all_mhz
        highest_mhz = max(self._loaded_mhz, default=0.0)
        return step_mhz < highest_mhz - min(self._loaded_mhz, default=0.0) <= _DRIFT * highest_mhz

    def _find(self, name: str) -> ZeusPowerLimit | PowerProfile | _Clock | None:
        try:
            if name == POWER_LIMIT:
                return ZeusPowerLimit(self._gpu, typed)
            if name == POWER_PROFILE:
                return self._power_profile()
            return _Clock(self._gpu, self._clock_spec(name), self._locks(name))
        except KnobFault as fault:
            self.missing[name] = str(fault)
            return None

    def _power_profile(self) -> PowerProfile:
        """The GPU's power profiles, which NVML sets: zeus and its daemon know none.

        Raises:
            KnobFault: The GPU has none, or this user may set it through the daemon only.
        """
        from zeus.device.common import has_sys_admin

        found = PowerProfile(self._nvml, self.handle, typed)
        if self._daemon is not None and not has_sys_admin():
            raise KnobFault(Cause.NO_PERMISSION, "zeusd cannot set power profiles: it takes root (CAP_SYS_ADMIN)")
        return found

    def _clock_spec(self, name: str) -> KnobSpec:
        """Spec of a clock knob: the clocks below the highest can be locked, and the highest stands for `unlocked`.

        Raises:
            KnobFault: The GPU is too old, or has fewer than two clocks.
        """
        with typed():
            architecture = self._nvml.nvmlDeviceGetArchitecture(self.handle)
        least = _VOLTA if name == GPU_CLOCK else _AMPERE
        if architecture < least:
            raise KnobFault(Cause.NOT_SUPPORTED, "this GPU is too old for locked clocks")
        if name == MEMORY_CLOCK:
            values = sorted(self.clocks_mhz)
        else:
            values = sorted({clock for clocks in self.clocks_mhz.values() for clock in clocks})
        if len(values) < 2:
            raise KnobFault(Cause.NOT_SUPPORTED, f"there is one clock, {values[0]:.0f} MHz" if values else "no clocks")
        return KnobSpec(name, "MHz", tuple(values[:-1]), {UNLOCKED: values[-1]})

    def _locks(self, name: str) -> tuple[Callable[[int, int], None], Callable[[], None]]:
        if name == GPU_CLOCK:
            return self._gpu.set_gpu_locked_clocks, self._gpu.reset_gpu_locked_clocks
        return self._gpu.set_memory_locked_clocks, self._gpu.reset_memory_locked_clocks

    def _supported_clocks(self) -> ClocksMhz:
        """Supported GPU clocks (MHz), ascending, by memory clock (MHz)."""
        with typed():
            memory = self._told(self._gpu.get_supported_memory_clocks) or []
            return {
                float(each): tuple(sorted(map(float, self._gpu.get_supported_graphics_clocks(each)))) for each in memory
            }


class _Clock:
    """Lock of one clock (MHz): the highest clock that the GPU may use."""

    def __init__(self, gpu: Any, spec: KnobSpec, locks: tuple[Callable[[int, int], None], Callable[[], None]]) -> None:
        self._gpu, self.spec = gpu, spec
        self._lock, self._reset = locks

    def read(self) -> Reading | None:
        return None

    def write(self, values: Reading | None) -> None:
        with typed():
            if values is None:
                self._reset()
            else:
                # The range begins at the lowest clock, so that an idle GPU can still rest.
                self._lock(round(self.spec.values[0]), round(values[0]))


def _open(nvml: Any, index: int) -> tuple[Access, Any, Any]:
    """Access to a GPU, the zeus object that sets it, and the daemon's connection (or None), which the caller closes.

    Raises:
        KnobFault: The GPU or the daemon does not answer.
    """
    import httpx
    from zeus.device.common import has_sys_admin
    from zeus.device.gpu.nvidia import NVIDIAGPU, ZeusdNVIDIAGPU
    from zeus.exception import ZeusBaseError
    from zeus.utils.zeusd import ZeusdClient, ZeusdConfig

    with typed():
        direct = NVIDIAGPU(index)
    direct._disable_sys_admin_warning = True  # ecoshare says so itself, once
    if (config := ZeusdConfig.from_env()) is None:
        if has_sys_admin():
            return Access(True, "as root"), direct, None
        return Access(False, "needs root (CAP_SYS_ADMIN) or zeusd", _REMEDIES[Cause.NO_PERMISSION]), direct, None
    if config.socket_path is not None and not Path(config.socket_path).exists():
        words = f"zeusd: there is no socket {config.socket_path}"
        return Access(False, words, _REMEDIES[Cause.UNREACHABLE]), direct, None
    client = None
    try:
        client = ZeusdClient(config)
        through = ZeusdNVIDIAGPU(index, client)
    except (ZeusBaseError, httpx.HTTPError, OSError, ValueError, KeyError) as error:
        if client is not None:
            client._client.close()  # zeus has no public way to close it
        return Access(False, f"zeusd: {error}", _REMEDIES[Cause.UNREACHABLE]), direct, None
    # The daemon knows GPUs by number only. In a container that shows some GPUs, a number can mean another GPU.
    theirs = [gpu.name for gpu in sorted(client.gpus, key=lambda each: each.id)]
    with typed():
        ours = [_name(nvml, each) for each in range(nvml.nvmlDeviceGetCount())]
    if len(theirs) != len(ours) or any(name not in (None, shown) for name, shown in zip(ours, theirs, strict=True)):
        return (
            Access(False, f"zeusd counts other GPUs ({len(theirs)}) than this process sees ({len(ours)})"),
            direct,
            client._client,
        )
    return Access(True, "through zeusd"), through, client._client


def _name(nvml: Any, index: int) -> str | None:
    """Name of a GPU; None if it is lost, which must not keep the others from being restored."""
    try:
        return str(nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(index)))
    except nvml.NVMLError_GpuIsLost:
        return None


@contextmanager
def typed() -> Iterator[None]:
    """Turn errors of the driver, of zeus and of its daemon into `KnobFault`."""
    import httpx
    import pynvml
    from zeus.device.exception import ZeusBaseGPUError, ZeusdError
    from zeus.exception import ZeusBaseError

    try:
        yield
    except (pynvml.NVMLError, ZeusBaseGPUError, ZeusBaseError, httpx.HTTPError) as error:
        causes: dict[type[Exception], Cause] = {
            pynvml.NVMLError_NoPermission: Cause.NO_PERMISSION,
            pynvml.NVMLError_NotSupported: Cause.NOT_SUPPORTED,
            pynvml.NVMLError_InvalidArgument: Cause.REFUSED,
            pynvml.NVMLError_GpuIsLost: Cause.LOST,
            pynvml.NVMLError_NotFound: Cause.LOST,
            httpx.HTTPError: Cause.UNREACHABLE,
        }
        cause = next((cause for kind, cause in causes.items() if isinstance(error, kind)), None) or cause_of(error)
        source = "zeusd" if isinstance(error, ZeusdError) else "the NVIDIA driver"
        source = "zeusd does not answer" if isinstance(error, httpx.HTTPError) else source
        said = f"{source}: {error}" if str(error) else f"{source} failed"
        raise KnobFault(cause, said, _REMEDIES.get(cause, "")) from error


@contextmanager
def _quiet() -> Iterator[None]:
    try:
        with typed():
            yield
    except KnobFault:
        pass
