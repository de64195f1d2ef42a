"""Reads the state of GPUs from NVIDIA's driver; `nvidia_knobs.py` sets them.

Errors of NVML and of zeus become `UnfitEnvironment`. A machine without the driver has no GPUs, which is no error.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

from ecoshare.base import device as near
from ecoshare.base import machine_memory
from ecoshare.base.plural import counted
from ecoshare.devices.meter import CounterMeter
from ecoshare.devices.vendor import DeviceHealth, DeviceState
from ecoshare.devices.zeus_knobs import reported
from ecoshare.errors import UnfitEnvironment


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


class GpuHealth:
    """Health of one GPU since this object was made.

    A GPU that slows down because it is warm is healthy, and measurements see its clocks. A query without an answer (not
    supported, a time-out, an error without a name) says nothing about health.
    """

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


_LOOK_PART_OF_THE_TIME, _LOOKS = ((8, 0), (9, 0), (10, 0), (10, 3)), 0.25
"""Compute capabilities of boards with a sensor that looks at the power for 25 ms of each 100 ms, and that part.

Seen on A100 and H100, and assumed for their successors. Source: Yang, Adamek and Armour, "Part-time Power Measurements:
nvidia-smi's Lack of Attention", arXiv 2312.02741.
"""


@dataclass(frozen=True, slots=True)
class NvmlGpu:
    """One GPU as the driver describes it.

    Attributes:
        index: Number in the driver and in `nvidia-smi`; CUDA may count differently.
        uuid: Permanent name.
        model: Name that the maker gives the GPU.
        memory_bytes: Size of the device memory. A GPU without memory of its own (GB10, integrated ones) has that of the
            machine.
        free_bytes: Free device memory.
        driver: Version of the driver.
        cuda: Newest version of CUDA that the driver runs; None if it does not tell.
        capability: Compute capability; None if the driver does not tell it.
        compute_mode: `default`, `exclusive_process` or `prohibited`.
        default_limit_w: Default power limit (W); None if the board does not report it.
        unfit: Reason why it cannot be shared, in words; empty if it can.
    """

    index: int
    uuid: str
    model: str
    memory_bytes: int
    free_bytes: int
    driver: str
    cuda: tuple[int, int] | None
    capability: tuple[int, int] | None
    compute_mode: str
    default_limit_w: float | None
    unfit: str


def gpus() -> list[NvmlGpu]:
    """All GPUs that the driver shows, in its order; empty without a driver.

    A GPU that is lost is left out, and so is one that this process may not use: CUDA does not count it either. One that
    does not tell what is needed to share it is unfit, and keeps no other GPU from being used.

    Raises:
        UnfitEnvironment: The driver fails.
    """
    with library() as nvml:
        if nvml is None:
            return []
        driver = str(nvml.nvmlSystemGetDriverVersion())
        found = []
        for index in range(nvml.nvmlDeviceGetCount()):
            with contextlib.suppress(nvml.NVMLError_GpuIsLost, nvml.NVMLError_NoPermission):
                found.append(_gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(index), index, driver))
        return found


def power_w(uuid: str) -> float | None:
    """Present power draw of a GPU (W); None if the board does not report it.

    Raises:
        UnfitEnvironment: There is no driver, or no such GPU.
    """
    with library() as nvml:
        if nvml is None:
            raise UnfitEnvironment("there is no NVIDIA driver on this machine")
        handle = handle_of(nvml, uuid)
        watts: float | None = _optional(nvml, lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000)
        return watts


class NvmlDevice:
    """One GPU that is read repeatedly. The driver's library stays open until `close`."""

    def __init__(self, uuid: str) -> None:
        """Open the GPU with this UUID.

        Raises:
            UnfitEnvironment: There is no driver, or no such GPU.
        """
        import pynvml
        from zeus.device.gpu.nvidia import NVIDIAGPU

        self._nvml, self._told = pynvml, partial(reported, _typed)
        with _typed():
            pynvml.nvmlInit()
            try:
                self._handle = handle_of(pynvml, uuid)
                self._zeus = NVIDIAGPU(pynvml.nvmlDeviceGetIndex(self._handle))
                self._health = GpuHealth(pynvml, uuid, self._handle)
            except BaseException:
                pynvml.nvmlShutdown()
                raise

    def health(self) -> DeviceHealth:
        """Whether the GPU still works; see `GpuHealth`."""
        return self._health.look()

    def close(self) -> None:
        """Release the driver's library."""
        with contextlib.suppress(UnfitEnvironment), _typed():
            self._nvml.nvmlShutdown()

    def open_meter(self) -> CounterMeter:
        """Meter that reads the GPU's energy counter.

        Raises:
            MeterFault: This GPU has no counter, or the counter stands still.
            UnfitEnvironment: The driver fails.
        """
        capability = self._told(lambda: self._nvml.nvmlDeviceGetCudaComputeCapability(self._handle))
        looks = _LOOKS if capability is not None and tuple(capability) in _LOOK_PART_OF_THE_TIME else 1.0
        return CounterMeter("nvml", self.energy_j, looks).open()

    def energy_j(self) -> float:
        """Joules since the driver was loaded, for everything on the board.

        Raises:
            UnfitEnvironment: The GPU is older than Volta and so has no counter, or it does not answer.
        """
        with _typed():
            if not self._zeus.supports_get_total_energy_consumption():
                raise UnfitEnvironment("this GPU is older than Volta and has no energy counter")
            return float(self._zeus.get_total_energy_consumption()) / 1000

    def state(self) -> DeviceState:
        """Present state of the GPU; a value that it does not report is None."""
        nvml, handle = self._nvml, self._handle
        use = self._told(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        memory = self._told(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        return DeviceState(
            power_w=self._told(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            gpu_clock_mhz=self._told(lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))),
            memory_clock_mhz=self._told(lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM))),
            temperature_c=self._told(lambda: temperature_c(nvml, handle)),
            busy=use.gpu / 100 if use is not None else None,
            memory_busy=use.memory / 100 if use is not None else None,
            memory_bytes=int(memory.used) if memory is not None else None,
        )

    def power_limit_w(self) -> float | None:
        """Power limit in force (W), no matter which program set it; None if the GPU does not report it."""
        limit_mw = self._told(lambda: self._nvml.nvmlDeviceGetEnforcedPowerLimit(self._handle))
        return float(limit_mw) / 1000 if limit_mw is not None else None

    def processes(self) -> dict[int, int]:
        """Device memory (bytes) by process number, context and libraries included.

        Processes that the driver hides are left out. Inside a container the driver's process numbers may be those of
        the host.
        """
        found = self._told(lambda: running_processes(self._nvml, self._handle))
        return {each.pid: int(each.usedGpuMemory) for each in found or () if each.usedGpuMemory is not None}


@contextmanager
def _typed() -> Iterator[None]:
    """Turn errors of the driver and of zeus into `UnfitEnvironment`."""
    import pynvml
    from zeus.device.exception import ZeusBaseGPUError

    try:
        yield
    except (pynvml.NVMLError, ZeusBaseGPUError) as error:
        raise UnfitEnvironment(f"the NVIDIA driver failed: {error}", "see `nvidia-smi`") from error


def _gpu(nvml: Any, handle: Any, index: int, driver: str) -> NvmlGpu:
    mode, model, unfit = "default", "a GPU", ""
    memory_bytes = free_bytes = 0
    limit_w = None
    try:
        model = str(nvml.nvmlDeviceGetName(handle))
        if _optional(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle)[0]):
            # The driver may forbid to read its other values.
            unfit = "is cut into MIG instances, which ecoshare cannot share yet"
        else:
            modes = {
                nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive_process",
                nvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
            }
            mode = modes.get(_optional(nvml, lambda: nvml.nvmlDeviceGetComputeMode(handle)), "default")
            unfit = "is in compute mode `prohibited`: no program may use it" if mode == "prohibited" else ""
            memory_bytes, free_bytes = _memory_bytes(nvml, handle)
            limit_w = _optional(nvml, lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000)
    except nvml.NVMLError_GpuIsLost:
        raise
    except nvml.NVMLError as error:
        unfit = f"does not tell what a run must know of it: the NVIDIA driver says {str(error)!r}"
    cuda, capability = _cuda(nvml), _told(nvml, lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle))
    uuid = str(nvml.nvmlDeviceGetUUID(handle))
    return NvmlGpu(index, uuid, model, memory_bytes, free_bytes, driver, cuda, capability, mode, limit_w, unfit)


def _cuda(nvml: Any) -> tuple[int, int] | None:
    """Newest version of CUDA that the driver runs. The question does not initialise CUDA."""
    number = _told(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2)
    return (number // 1000, number % 1000 // 10) if number else None


def _told(nvml: Any, read: Any) -> Any:
    """Result of `read`, or None if it is not to be had: a run can do without it."""
    try:
        return read()
    except nvml.NVMLError_GpuIsLost:
        raise
    except nvml.NVMLError:
        return None


def _memory_bytes(nvml: Any, handle: Any) -> tuple[int, int]:
    """Whole and free memory. A GPU that has none of its own supports no such question."""
    if (memory := _optional(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))) is None:
        return machine_memory.total_bytes(), machine_memory.available_bytes()
    return int(memory.total), int(memory.free)


def _optional(nvml: Any, read: Any) -> Any:
    """Result of `read`, or None if this board does not support it."""
    try:
        return read()
    except nvml.NVMLError_NotSupported:
        return None


@contextmanager
def library() -> Iterator[Any]:
    """Context manager: the initialised library, or None without a driver."""
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


PciPlace = tuple[int, int, int]
"""Domain, bus and device of a PCI device."""


@dataclass(frozen=True, slots=True)
class _Links:
    """Active NVLinks of one GPU.

    A link that NVML does not tell is unknown, and never an error: a run can do without it.

    Attributes:
        place: PCI place of the GPU; None if NVML does not tell it.
        to: Number of links to each PCI place.
        to_switches: Number of links to NVSwitches.
    """

    place: PciPlace | None
    to: Counter[PciPlace]
    to_switches: int


def gpu_nearness(uuids: Sequence[str]) -> dict[tuple[int, int], int]:
    """Nearness (`base/device.py`) of pairs of GPUs, by their places in `uuids`; without unknown pairs.

    All GPUs with links to NVSwitches reach each other through them, since the switches of a machine are one fabric.

    Raises:
        UnfitEnvironment: The driver does not answer.
    """
    with library() as opened:
        if opened is None:
            return {}
        handles = [_told_links(opened, handle_of, opened, uuid) for uuid in uuids]
        links = [_links(opened, handle) for handle in handles]
        found = {}
        for one, other in combinations(range(len(uuids)), 2):
            if handles[one] is None or handles[other] is None:
                continue
            if count := _between(links[one], links[other]):
                found[one, other] = near.over_nvlinks(count)
            elif level := _level(opened, handles[one], handles[other]):
                found[one, other] = level
        return found


def _links(library: Any, handle: Any) -> _Links:
    def place_of(read: Callable[..., Any], *of: Any) -> PciPlace | None:
        told = _told_links(library, read, handle, *of)
        return (told.domain, told.bus, told.device) if told is not None else None

    to: Counter[PciPlace] = Counter()
    to_switches = 0
    # A board may lack links in between, so that none of them can be the last one.
    for link in range(library.NVML_NVLINK_MAX_LINKS if handle is not None else 0):
        if not _told_links(library, library.nvmlDeviceGetNvLinkState, handle, link):
            continue
        kind = _told_links(library, library.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        if kind == library.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            to_switches += 1
        elif (place := place_of(library.nvmlDeviceGetNvLinkRemotePciInfo, link)) is not None:
            to[place] += 1
    return _Links(place_of(library.nvmlDeviceGetPciInfo) if to else None, to, to_switches)


def _between(one: _Links, other: _Links) -> int:
    """Number of NVLinks between two GPUs: links that one of the two tells, or those to the switches."""
    direct = max(one.to[other.place] if other.place else 0, other.to[one.place] if one.place else 0)
    return direct or min(one.to_switches, other.to_switches)


def _level(library: Any, one: Any, other: Any) -> int:
    """Nearness by the nearest part of PCIe that two GPUs share."""
    levels = {
        library.NVML_TOPOLOGY_INTERNAL: near.ONE_BOARD,
        library.NVML_TOPOLOGY_SINGLE: near.ONE_SWITCH,
        library.NVML_TOPOLOGY_MULTIPLE: near.SEVERAL_SWITCHES,
        library.NVML_TOPOLOGY_HOSTBRIDGE: near.HOST_BRIDGE,
        library.NVML_TOPOLOGY_NODE: near.NUMA_NODE,
        library.NVML_TOPOLOGY_SYSTEM: near.ACROSS_NODES,
    }
    told = _told_links(library, library.nvmlDeviceGetTopologyCommonAncestor, one, other)
    return levels.get(told, near.UNKNOWN) if told is not None else near.UNKNOWN


def _told_links(library: Any, read: Callable[..., Any], *of: Any) -> Any:
    """Result of a function of NVML; None if the driver does not tell it, for whatever reason."""
    try:
        return read(*of)
    except library.NVMLError:
        return None
