"""AMD GPUs: amdsmi finds and reads them, zeus counts their joules and sets their power limit.

PyTorch for ROCm calls these GPUs `cuda:N`, and N counts as HIP does. The driver counts in the order of the bus, which
differs on some machines. So a GPU is found by its HIP number, and known by its UUID.

amdsmi counts no users: one shut-down ends it for the whole process. So it is opened once, and stays open.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

from ecoshare.base.class_profile import POWER_LIMIT
from ecoshare.base.device import ACROSS_NODES, NUMA_NODE, UNKNOWN, XGMI, DeviceInfo
from ecoshare.devices import meter
from ecoshare.devices.knob import GPU_CLOCK, MEMORY_CLOCK, Access, Cause, Clocks, ClocksMhz, DeviceKnob, KnobFault
from ecoshare.devices.memory_transfer import MemoryTransfer
from ecoshare.devices.meter import CounterMeter, MeterFault, PowerModel
from ecoshare.devices.torch_build import TorchBuild
from ecoshare.devices.vendor import ContextSharing, DeviceHealth, DeviceState
from ecoshare.devices.zeus_knobs import ZeusPowerLimit, cause_of, reported
from ecoshare.errors import UnfitEnvironment

SHARE = 0.95
"""Share of the free memory that a run may use. The rest is for the driver, which needs more with each context."""

_PLAUSIBLE = (0.1, 10.0)
"""Ratio of the counter's joules to those of the power draw outside which the counter is wrong, as zeus judges it.

Some boards count wrongly: https://github.com/ROCm/amdsmi/issues/38.
"""

_CHECKED_S = 0.5
_MB = 1 << 20

_NO_PERMISSION = "it takes root (CAP_SYS_ADMIN) on the machine, which root of a container lacks"
_NO_LOCKS = "amdsmi does not tell whether another program has locked a clock, so ecoshare locks none"


class AmdDevice:
    """One GPU that is read repeatedly."""

    def __init__(self, uuid: str) -> None:
        """Open the GPU with this UUID.

        Raises:
            UnfitEnvironment: There is no driver, or no such GPU.
        """
        self._smi, self._handle, self._hip = _found(uuid)
        self._gpu, self._told = _zeus_gpu(self._hip), functools.partial(reported, _typed)

    def close(self) -> None:
        """Do nothing: amdsmi stays open, since one shut-down would end it for every user in this process."""

    def open_meter(self) -> CounterMeter:
        """Meter that reads the GPU's energy counter, after a comparison with the power draw.

        Raises:
            MeterFault: The GPU has no counter, its counter stands still, or it is far off the power draw.
        """
        meter = CounterMeter("amdsmi", self._energy_j).open()
        first = meter.read()
        time.sleep(max(_CHECKED_S, 2 * meter.info.period_s))
        last = meter.read()
        counted_w = (last.energy_j - first.energy_j) / (last.at_s - first.at_s)
        drawn_w = self._told(self._power_w)
        if not drawn_w:
            # The second die of an MI250 reports neither power nor joules: the first one counts both dies.
            raise MeterFault("this GPU reports no power draw, so its energy counter cannot be trusted")
        if not _PLAUSIBLE[0] < counted_w / drawn_w < _PLAUSIBLE[1]:
            raise MeterFault(f"the GPU's energy counter says {counted_w:.0f} W, and its power draw is {drawn_w:.0f} W")
        return meter

    def state(self) -> DeviceState:
        """Present state of the GPU; a value that it does not report is None."""
        smi, handle = self._smi, self._handle
        use = self._told(lambda: smi.amdsmi_get_gpu_activity(handle)) or {}
        memory = self._told(lambda: smi.amdsmi_get_gpu_vram_usage(handle)) or {}
        used = _number(memory.get("vram_used"))
        return DeviceState(
            power_w=self._told(self._power_w),
            gpu_clock_mhz=self._clock_mhz(smi.AmdSmiClkType.GFX),
            memory_clock_mhz=self._clock_mhz(smi.AmdSmiClkType.MEM),
            temperature_c=self._told(lambda: float(self._gpu.get_gpu_temperature())),
            busy=_share(use.get("gfx_activity")),
            memory_busy=_share(use.get("umc_activity")),
            memory_bytes=int(used * _MB) if used is not None else None,
        )

    def health(self) -> DeviceHealth:
        """Whether the driver still shows the GPU. Memory errors and temperatures are not judged."""
        try:
            with _typed():
                self._smi.amdsmi_get_gpu_vram_usage(self._handle)
        except KnobFault as fault:
            return DeviceHealth(str(fault) if fault.cause is Cause.LOST else "")
        return DeviceHealth()

    def processes(self) -> dict[int, int]:
        """Device memory (bytes) by process number, as far as the driver reports it."""
        found = self._told(lambda: self._smi.amdsmi_get_gpu_process_list(self._handle)) or []
        return {each["pid"]: int(each["memory_usage"]["vram_mem"]) for each in found}

    def power_limit_w(self) -> float | None:
        """Power limit in force (W); None if the GPU does not report it."""
        limit_mw = self._told(self._gpu.get_power_management_limit)
        return float(limit_mw) / 1000 if limit_mw is not None else None

    def _energy_j(self) -> float:
        try:
            with _typed():
                return float(self._gpu.get_total_energy_consumption()) / 1000
        except KnobFault as fault:
            raise UnfitEnvironment(str(fault), fault.remedy) from fault

    def _power_w(self) -> float:
        power = self._smi.amdsmi_get_power_info(self._handle)
        told = (_number(power[name]) for name in ("current_socket_power", "average_socket_power"))
        return next((watts for watts in told if watts), 0.0)

    def _clock_mhz(self, kind: Any) -> float | None:
        clock = self._told(lambda: self._smi.amdsmi_get_clock_info(self._handle, kind)) or {}
        return _number(clock.get("clk"))


class AmdKnobs:
    """The power limit of one GPU."""

    def __init__(self, uuid: str) -> None:
        """Open the GPU with this UUID and find its knobs.

        Raises:
            UnfitEnvironment: There is no driver, or no such GPU.
        """
        from zeus.device.common import has_sys_admin

        self._device = AmdDevice(uuid)
        gpu = self._device._gpu
        gpu._disable_sys_admin_warning = True  # ecoshare says so itself, once
        self.access = Access(True, "as root") if has_sys_admin() else Access(False, "needs root", _NO_PERMISSION)
        self.missing: dict[str, str] = {GPU_CLOCK: _NO_LOCKS, MEMORY_CLOCK: _NO_LOCKS}
        self.clocks_mhz: ClocksMhz = {}
        self.knobs: tuple[DeviceKnob, ...] = ()
        try:
            self.knobs = (ZeusPowerLimit(gpu, _typed),)
        except KnobFault as fault:
            self.missing[POWER_LIMIT] = str(fault)
            if fault.cause is not Cause.NOT_SUPPORTED:
                raise UnfitEnvironment(str(fault), fault.remedy) from fault

    def close(self) -> None:
        """Release the GPU."""
        self._device.close()

    def clocks(self) -> Clocks:
        """Present clocks, without the reasons that keep them low."""
        state = self._device.state()
        return Clocks(state.gpu_clock_mhz, state.memory_clock_mhz, (), state.temperature_c)

    def looks_unlocked(self, knob: str) -> bool:
        """True: the power limit can be read, so nothing must be guessed."""
        return True


class Amd:
    """Vendor of AMD GPUs."""

    name, kind, precedence = "amd", "cuda", 1
    modules = ("amdsmi", "zeus.device.gpu.amd")

    def visible(self) -> list[DeviceInfo]:
        """Visible GPUs in the order in which HIP counts them in this environment.

        `HIP_VISIBLE_DEVICES` takes HIP numbers; without it `CUDA_VISIBLE_DEVICES` does, as in HIP itself. A number that
        fits no GPU hides all that follow.

        Raises:
            UnfitEnvironment: The driver fails, or `ROCR_VISIBLE_DEVICES` is set: HIP numbers then count other GPUs.
        """
        if (smi := _amdsmi()) is None:
            return []
        if os.environ.get("ROCR_VISIBLE_DEVICES"):
            raise UnfitEnvironment(
                "ROCR_VISIBLE_DEVICES changes what HIP numbers count, and ecoshare cannot follow it",
                "name the GPUs in HIP_VISIBLE_DEVICES",
            )
        with _unfit():
            handles = _handles(smi)
            return [_info(smi, place, handles[number]) for place, number in enumerate(_visible(sorted(handles)))]

    def environment(self, devices: Sequence[DeviceInfo]) -> dict[str, str | None]:
        """Variables that name the GPUs by their HIP numbers."""
        numbers = [hip for _, _, hip in (_found(str(each.uuid)) for each in devices)]
        return {"HIP_VISIBLE_DEVICES": ",".join(map(str, numbers)), "CUDA_VISIBLE_DEVICES": None}

    def nearness(self, devices: Sequence[DeviceInfo]) -> dict[tuple[str, str], int]:
        """Nearness by XGMI links, else by the NUMA nodes of the GPUs; without pairs that amdsmi does not tell.

        Raises:
            UnfitEnvironment: There is no driver.
        """
        gpus = [(each.name, *_found(str(each.uuid))) for each in devices]
        pairs = combinations([(name, smi, handle) for name, smi, handle, _ in gpus], 2)
        found = {(one, other): _nearness(smi, handle, to) for (one, smi, handle), (other, _, to) in pairs}
        return {pair: near for pair, near in found.items() if near}

    def share_contexts(
        self, devices: Sequence[DeviceInfo], lanes: int, places: int, folder: Path, environment: Mapping[str, str]
    ) -> ContextSharing:
        """No service: each process has queues of its own, which the GPU runs at the same moment."""
        return ContextSharing("the GPU runs the queues of several processes at once")

    def check_torch(self, devices: Sequence[DeviceInfo], build: TorchBuild) -> None:
        """Check that torch is built for ROCm.

        Raises:
            UnfitEnvironment: It is not.
        """
        if not build.hip:
            first = devices[0]
            raise UnfitEnvironment(
                f"torch {build.version} is built without ROCm, so no job could use {first.name} ({first.model})",
                "install a build of torch for ROCm, or run with `--device cpu`",
            )

    def memory_transfer(self, device: DeviceInfo, environment: Mapping[str, str]) -> MemoryTransfer:
        """None to be had: the driver has no calls for it.

        Raises:
            UnfitEnvironment: Always.
        """
        raise UnfitEnvironment(
            "AMD's driver cannot move the memory of a running job to the host", "run without `--host-memory`"
        )

    def power_model(self, device: DeviceInfo) -> PowerModel | None:
        """Power model from the present power draw and the default power limit; None if the board lacks either.

        Raises:
            UnfitEnvironment: There is no driver, or no such GPU.
        """
        idle_w = self.open(device).state().power_w
        return meter.gpu_power_model(idle_w, device.power_limit_w) if idle_w and device.power_limit_w else None

    def open_knobs(self, key: str) -> AmdKnobs:
        """Open the knobs of the GPU with this UUID.

        Raises:
            UnfitEnvironment: There is no driver, or no such GPU.
        """
        return AmdKnobs(key)

    def open(self, device: DeviceInfo) -> AmdDevice:
        """Open a GPU to read it.

        Raises:
            UnfitEnvironment: There is no driver, or no such GPU.
        """
        return AmdDevice(str(device.uuid))


VENDOR = Amd()


@functools.cache
def _amdsmi() -> Any:
    """amdsmi, open; None without AMD's library, or without its driver.

    Raises:
        UnfitEnvironment: The driver does not answer.
    """
    if not _is_installed():  # the import takes long, and prints a complaint without the library
        return None
    try:
        with contextlib.redirect_stdout(None):
            import amdsmi
    except (ImportError, OSError, AttributeError, KeyError) as error:  # another version than the library
        raise UnfitEnvironment(f"amdsmi does not fit the driver: {error}", "install the amdsmi of this ROCm") from error
    try:
        amdsmi.amdsmi_init(amdsmi.AmdSmiInitFlags.INIT_AMD_GPUS)
    except amdsmi.AmdSmiLibraryException as error:
        if error.get_error_code() in (
            amdsmi.amdsmi_wrapper.AMDSMI_STATUS_NO_DRV,
            amdsmi.amdsmi_wrapper.AMDSMI_STATUS_DRIVER_NOT_LOADED,
        ):
            return None
        raise UnfitEnvironment(f"the AMD driver does not answer: {error.get_error_info()}", "see `amd-smi`") from error
    return amdsmi


def _is_installed() -> bool:
    """Whether AMD's library can be loaded, from the places where amdsmi looks for it."""
    named = os.environ.get("ROCM_HOME", os.environ.get("ROCM_PATH"))
    places = [Path(folder) / "lib/libamd_smi.so" for folder in (named, "/opt/rocm") if folder]
    for place in (*places, "libamd_smi.so"):
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(place))
            return True
    return False


def _handles(smi: Any) -> dict[int, Any]:
    """Handle of each GPU, by HIP number."""
    return {smi.amdsmi_get_gpu_enumeration_info(each)["hip_id"]: each for each in smi.amdsmi_get_processor_handles()}


def _found(uuid: str) -> tuple[Any, Any, int]:
    """amdsmi, and the handle and HIP number of the GPU with this UUID.

    Raises:
        UnfitEnvironment: There is no driver, or no such GPU.
    """
    if (smi := _amdsmi()) is None:
        raise UnfitEnvironment("there is no AMD driver on this machine")
    with _unfit():
        for number, handle in _handles(smi).items():
            if smi.amdsmi_get_gpu_device_uuid(handle) == uuid:
                return smi, handle, number
    raise UnfitEnvironment(f"there is no AMD GPU {uuid} on this machine", "see `amd-smi`")


def _zeus_gpu(hip: int) -> Any:
    from zeus.device.gpu.amd import AMDGPU

    with _unfit():
        return AMDGPU(hip)


def _visible(numbers: list[int]) -> list[int]:
    """HIP numbers that the environment leaves visible, in its order."""
    names = os.environ.get("HIP_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))
    if names is None:
        return numbers
    visible: list[int] = []
    for name in names.split(","):
        if not name.strip().isdigit() or int(name) not in numbers:
            break
        visible.append(int(name))
    return visible


def _info(smi: Any, place: int, handle: Any) -> DeviceInfo:
    memory = smi.amdsmi_get_gpu_vram_usage(handle)
    free_bytes = (memory["vram_total"] - memory["vram_used"]) * _MB
    limit_uw = None
    with contextlib.suppress(KnobFault), _typed():
        limit_uw = _number(smi.amdsmi_get_power_cap_info(handle)["default_power_cap"])
    return DeviceInfo(
        name=f"cuda:{place}",
        kind=Amd.kind,
        model=str(smi.amdsmi_get_gpu_asic_info(handle)["market_name"]),
        uuid=str(smi.amdsmi_get_gpu_device_uuid(handle)),
        memory_bytes=int(free_bytes * SHARE),
        cores=len(os.sched_getaffinity(0)),
        power_limit_w=limit_uw / 1e6 if limit_uw else None,
        driver=str(smi.amdsmi_get_gpu_driver_info(handle)["driver_version"]),
        vendor=Amd.name,
        total_bytes=memory["vram_total"] * _MB,
        free_bytes=free_bytes,
    )


def _nearness(smi: Any, one: Any, other: Any) -> int:
    with contextlib.suppress(smi.AmdSmiLibraryException):
        kind = smi.amdsmi_topo_get_link_type(one, other)["type"]
        if kind == smi.AmdSmiLinkType.AMDSMI_LINK_TYPE_XGMI:
            return XGMI
        if kind == smi.AmdSmiLinkType.AMDSMI_LINK_TYPE_PCIE:
            nodes = {smi.amdsmi_topo_get_numa_node_number(each) for each in (one, other)}
            return NUMA_NODE if len(nodes) == 1 else ACROSS_NODES
    return UNKNOWN


def _number(value: Any) -> float | None:
    """The value; None for `N/A`, amdsmi's word for what a board does not report."""
    return float(value) if isinstance(value, int | float) else None


def _share(percent: Any) -> float | None:
    value = _number(percent)
    return value / 100 if value is not None else None


@contextmanager
def _typed() -> Iterator[None]:
    """Turn errors of amdsmi and of zeus into `KnobFault`."""
    import amdsmi
    from zeus.device.exception import ZeusBaseGPUError

    codes = {
        amdsmi.amdsmi_wrapper.AMDSMI_STATUS_NO_PERM: Cause.NO_PERMISSION,
        amdsmi.amdsmi_wrapper.AMDSMI_STATUS_NOT_SUPPORTED: Cause.NOT_SUPPORTED,
        amdsmi.amdsmi_wrapper.AMDSMI_STATUS_INVAL: Cause.REFUSED,
        amdsmi.amdsmi_wrapper.AMDSMI_STATUS_NOT_FOUND: Cause.LOST,
    }
    try:
        yield
    except ZeusBaseGPUError as error:
        raise _fault(cause_of(error), str(error)) from error
    except amdsmi.AmdSmiLibraryException as error:
        raise _fault(codes.get(error.get_error_code(), Cause.FAILED), str(error.get_error_info())) from error


@contextmanager
def _unfit() -> Iterator[None]:
    """Turn errors of amdsmi and of zeus into `UnfitEnvironment`."""
    try:
        with _typed():
            yield
    except KnobFault as fault:
        raise UnfitEnvironment(str(fault), fault.remedy) from fault


def _fault(cause: Cause, words: str) -> KnobFault:
    remedy = _NO_PERMISSION if cause is Cause.NO_PERMISSION else "see `amd-smi`" if cause is Cause.LOST else ""
    return KnobFault(cause, f"the AMD driver: {words}", remedy)
