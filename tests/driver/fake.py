"""Fake NVIDIA driver: the real `pynvml` and `zeus` load it in place of the real library.

::

    with FakeDriver(tmp_path, [presets.H200], virtual=True) as driver:
        driver.gpu(0).load(pid=101, compute=0.6, memory=0.2)
        driver.advance(3600.0)
        pynvml.nvmlInit()
        ...
    subprocess.run(command, env={**os.environ, **driver.environment})  # another process, the same GPUs
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from ecoshare.devices.nvidia import cuda_checkpoint
from tests.driver import build, faults, presets
from tests.driver.faults import Fault
from tests.driver.pretend import Pretend
from tests.driver.state import CALLS, EVENT_CEILING, EVENT_TEMPERATURE, FAULTS, GPUS, Page, State
from tests.driver.state import Fault as FaultRecord

VIRTUAL_BEGIN_S = 1000
"""Time of the virtual clock at its start."""


@dataclass(frozen=True)
class Settings:
    """Settings of a GPU. NVML does not tell the ranges; None is unlocked."""

    power_limit_w: float
    gpu_clocks_mhz: tuple[int, int] | None
    memory_clocks_mhz: tuple[int, int] | None
    persistence: bool
    power_profiles: tuple[int, ...] = ()


@dataclass(frozen=True)
class SetterCall:
    """One call that sets something on a GPU, successful or not; `result` is NVML's number, 0 for success."""

    function: str
    gpu: int
    values: tuple[int, int]
    result: int
    pid: int
    at_s: float


class FakeGpu:
    """One GPU, controlled from behind the driver."""

    def __init__(self, state: State, index: int) -> None:
        """The GPU that NVML gives this index."""
        self._state, self.index = state, index
        self._pretend = Pretend(state.path, index)

    @property
    def uuid(self) -> str:
        """UUID of the GPU."""
        return str(self._state.read().gpu[self.index].uuid.decode())

    def load(
        self, pid: int, *, compute: float = 0.0, memory: float = 0.0, used_bytes: int = 0, real: bool = False
    ) -> None:
        """Put the load of a process, by default an invented one, on the GPU; see `Pretend.load`."""
        self._pretend.load(pid, compute, memory, used_bytes, real=real)

    def end(self, pid: int) -> None:
        """Let a process leave the GPU."""
        self._pretend.end(pid)

    def ceiling(self, mhz: int | None, reasons: int = presets.SOFTWARE_THERMAL) -> None:
        """Bound the graphics clock that the GPU achieves for any request, for these reasons; None removes the bound."""
        with self._state.change() as page:
            page.gpu[self.index].ceiling_reasons = reasons
        self._state.post(self.index, EVENT_CEILING, mhz or 0)

    def temperature(self, celsius: int) -> None:
        """Set the temperature that the GPU shows. It has no other effect."""
        self._state.post(self.index, EVENT_TEMPERATURE, celsius)

    def ecc_errors(self, count: int, *, remapping: int = 0) -> None:
        """Set the number of uncorrected memory errors, and what became of remapped rows: 1 pending, 2 failed."""
        with self._state.change() as page:
            page.gpu[self.index].ecc_errors, page.gpu[self.index].remapping = count, remapping

    def fault(self, fault: Fault, *, functions: str | None = None, first: int = 1, times: int = 0) -> None:
        """Inject a fault into this GPU; see `FakeDriver.fault`."""
        with self._state.change() as page:
            faults.place(page, fault, self.index, functions, first, times)

    def settings(self) -> Settings:
        """Present settings of the GPU."""
        gpu = self._state.read().gpu[self.index]
        return Settings(
            gpu.limit_mw / 1000,
            _range(gpu.gpu_lock_mhz),
            _range(gpu.memory_lock_mhz),
            bool(gpu.persistence),
            tuple(bit for bit in range(256) if gpu.requested_profiles[bit // 32] >> bit % 32 & 1),
        )

    def limit_power(self, watts: float) -> None:
        """Set the power limit, as another program would."""
        with self._state.change() as page:
            page.gpu[self.index].limit_mw = round(1000 * watts)

    def request_profiles(self, *numbers: int) -> None:
        """Request exactly these power profiles, as another program would. No limit is moved."""
        with self._state.change() as page:
            requested = page.gpu[self.index].requested_profiles
            requested[:] = [sum(1 << each % 32 for each in numbers if each // 32 == word) for word in range(8)]


class FakeDriver:
    """Driver with its GPUs; while it is entered, once or several times, it is the driver of this process."""

    def __init__(
        self,
        folder: Path,
        gpus: Sequence[presets.Preset] = (presets.H200,),
        *,
        version: str = "",
        virtual: bool = False,
        period_ms: int = 100,
        phase_ms: int = 0,
    ) -> None:
        """Make a driver with its state in a file in `folder`.

        Args:
            version: Version of the driver, which then tells the CUDA that it runs. Without one it tells none, and a
                torch for processors may use its GPUs.
            virtual: Whether time passes only by `advance`.
            period_ms: Time between updates of the energy counters.
            phase_ms: Time of the first update, counted from the clock's zero.
        """
        assert 0 < len(gpus) <= GPUS and period_ms > 0
        page = Page(len(gpus), virtual, VIRTUAL_BEGIN_S * 10**9, period_ms * 10**6, phase_ms * 10**6)
        page.driver_version, page.nvml_version = version.encode() or b"580.95.05", b"13.580.95.05"
        page.tells_cuda = bool(version)
        for index, preset in enumerate(gpus):
            page.gpu[index] = preset.gpu(index)
            page.gpu[index].until_ns = page.now_ns()
        self.library = build.library()
        self.state_path = folder / "nvml.state"
        self._state = State.create(self.state_path, page, self.library)
        self._gpus = [FakeGpu(self._state, index) for index in range(len(gpus))]
        for gpu, preset in zip(self._gpus, gpus, strict=True):
            if preset.lacks:
                gpu.fault(Fault.NOT_SUPPORTED, functions=preset.lacks)
        self._before: list[tuple[ctypes.CDLL | None, str, str | None]] = []  # one for each time that it was entered

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which child processes load this driver."""
        path = os.environ.get("LD_LIBRARY_PATH")
        folders = [str(self.library.parent)] + ([path] if path else [])
        return {"FAKE_NVML_STATE": str(self.state_path), "LD_LIBRARY_PATH": os.pathsep.join(folders)}

    def gpu(self, index: int) -> FakeGpu:
        """The GPU that NVML gives this index."""
        return self._gpus[index]

    def advance(self, seconds: float) -> None:
        """Let virtual time pass."""
        with self._state.change() as page:
            assert page.is_virtual, "this driver's time is the real one"
            page.virtual_ns += round(seconds * 1e9)

    def fault(self, fault: Fault, *, functions: str | None = None, first: int = 1, times: int = 0) -> None:
        """Inject a fault into calls for any GPU.

        Args:
            functions: Pattern of the functions that fail; by default those of the fault.
            first: Number of the first matching call that fails, counted from 1.
            times: Number of matching calls that fail; 0 is all.
        """
        with self._state.change() as page:
            faults.place(page, fault, None, functions, first, times)

    def mend(self) -> None:
        """Remove all faults."""
        with self._state.change() as page:
            for index in range(FAULTS):
                page.faults[index] = FaultRecord()

    def connect(self, one: int, other: int, *, nvlinks: int = 0, level: int | None = None) -> None:
        """Set how two GPUs are linked.

        Args:
            nvlinks: Number of NVLinks between the two.
            level: NVML's level of the nearest part of PCIe that they share; None if the driver does not tell it.
        """
        with self._state.change() as page:
            for own, peer in ((one, other), (other, one)):
                page.gpu[own].peer_links[peer] = nvlinks
                page.gpu[own].common_level[peer] = 0 if level is None else level + 1

    def connect_to_switch(self, gpu: int, nvlinks: int, *, idle: int = 0) -> None:
        """Set the NVLinks of a GPU to the NVSwitches, the first `idle` of which are not active."""
        with self._state.change() as page:
            page.gpu[gpu].switch_links, page.gpu[gpu].idle_links = nvlinks, idle

    def setter_calls(self) -> list[SetterCall]:
        """All calls so far that set something, from any process, in order.

        Raises:
            BufferError: There were more than 256 calls, so some are unknown.
        """
        page = self._state.read()
        if page.calls_made > CALLS:
            raise BufferError(f"{page.calls_made} setters were called, of which {CALLS} are kept")
        return [
            SetterCall(call.function.decode(), call.gpu, tuple(call.values), call.result, call.pid, call.at_ns / 1e9)
            for call in page.calls[: page.calls_made]
        ]

    def __enter__(self) -> FakeDriver:
        import pynvml

        self._before.append((pynvml.nvmlLib, cuda_checkpoint.LIBRARY, os.environ.get("FAKE_NVML_STATE")))
        _leave(pynvml, ctypes.CDLL(str(self.library)))
        cuda_checkpoint.LIBRARY = str(self.library.with_name(build.CUDA))
        os.environ["FAKE_NVML_STATE"] = str(self.state_path)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import pynvml

        library, cuda_checkpoint.LIBRARY, path = self._before.pop()
        _leave(pynvml, library)
        os.environ.pop("FAKE_NVML_STATE")
        if path is not None:
            os.environ["FAKE_NVML_STATE"] = path


def _range(lock_mhz: Any) -> tuple[int, int] | None:
    return (lock_mhz[0], lock_mhz[1]) if lock_mhz[1] else None


def _leave(pynvml: Any, library: ctypes.CDLL | None) -> None:
    """Replace the present library by another one, as if NVML had never been initialised in this process."""
    zeus: Any = sys.modules.get("zeus.device.gpu")
    if zeus is not None:
        zeus._gpus = None
        zeus.nvml_is_available.cache_clear()
    # zeus shuts NVML down when its lists of GPUs are collected: not later, in another test. Each holds NVML open, so
    # without one the young objects are enough, and those of torch and others are not visited.
    gc.collect(2 if pynvml._nvmlLib_refcount else 1)
    while pynvml._nvmlLib_refcount:
        pynvml.nvmlShutdown()
    pynvml.nvmlLib = library
    pynvml._nvmlGetFunctionPointer_cache.clear()
