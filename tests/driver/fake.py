"""A fake NVIDIA driver: the real `pynvml` and `zeus` load it in place of the real library.

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

from tests.driver import build, faults, presets
from tests.driver.faults import Fault
from tests.driver.pretend import Pretend
from tests.driver.state import CALLS, EVENT_CEILING, EVENT_TEMPERATURE, FAULTS, GPUS, Page, State
from tests.driver.state import Fault as FaultRecord

VIRTUAL_BEGIN_S = 1000
"""What the virtual clock shows at first."""


@dataclass(frozen=True)
class Settings:
    """What is set on a GPU. NVML does not tell the ranges; None is unlocked."""

    power_limit_w: float
    gpu_clocks_mhz: tuple[int, int] | None
    memory_clocks_mhz: tuple[int, int] | None
    persistence: bool


@dataclass(frozen=True)
class SetterCall:
    """One call that was to change a GPU, successful or not; `result` is NVML's number, 0 for success."""

    function: str
    gpu: int
    values: tuple[int, int]
    result: int
    pid: int
    at_s: float


class FakeGpu:
    """One GPU, from behind the driver."""

    def __init__(self, state: State, index: int) -> None:
        """The GPU that NVML gives this index."""
        self._state, self.index = state, index
        self._pretend = Pretend(state.path, index)

    @property
    def uuid(self) -> str:
        """Its lasting name."""
        return str(self._state.read().gpu[self.index].uuid.decode())

    def load(
        self, pid: int, *, compute: float = 0.0, memory: float = 0.0, used_bytes: int = 0, real: bool = False
    ) -> None:
        """Let a process, by default an invented one, use the GPU like this from now on; see `Pretend.load`."""
        self._pretend.load(pid, compute, memory, used_bytes, real=real)

    def end(self, pid: int) -> None:
        """Let a process leave the GPU."""
        self._pretend.end(pid)

    def ceiling(self, mhz: int | None) -> None:
        """From now on no higher graphics clock is achieved, whatever is requested; None ends that."""
        self._state.post(self.index, EVENT_CEILING, mhz or 0)

    def temperature(self, celsius: int) -> None:
        """From now on the GPU has this temperature. Nothing follows from it."""
        self._state.post(self.index, EVENT_TEMPERATURE, celsius)

    def fault(self, fault: Fault, *, functions: str | None = None, first: int = 1, times: int = 0) -> None:
        """Have something go wrong with this GPU; see `FakeDriver.fault`."""
        with self._state.change() as page:
            faults.place(page, fault, self.index, functions, first, times)

    def settings(self) -> Settings:
        """What is set now."""
        gpu = self._state.read().gpu[self.index]
        return Settings(
            gpu.limit_mw / 1000, _range(gpu.gpu_lock_mhz), _range(gpu.memory_lock_mhz), bool(gpu.persistence)
        )


class FakeDriver:
    """A driver with its GPUs; entered, once or several times over, it is the driver of this process."""

    def __init__(
        self,
        folder: Path,
        gpus: Sequence[presets.Preset] = (presets.H200,),
        *,
        virtual: bool = False,
        period_ms: int = 100,
        phase_ms: int = 0,
    ) -> None:
        """A new driver, its state in a file in `folder`.

        Args:
            virtual: Whether time passes only by `advance`.
            period_ms: Time between updates of the energy counters.
            phase_ms: When the updates are, counted from the clock's zero.
        """
        assert 0 < len(gpus) <= GPUS and period_ms > 0
        page = Page(len(gpus), virtual, VIRTUAL_BEGIN_S * 10**9, period_ms * 10**6, phase_ms * 10**6)
        page.driver_version, page.nvml_version = b"580.95.05", b"13.580.95.05"
        for index, preset in enumerate(gpus):
            page.gpu[index] = preset.gpu(index)
            page.gpu[index].until_ns = page.now_ns()
        self.library = build.library()
        self.state_path = folder / "nvml.state"
        self._state = State.create(self.state_path, page, self.library)
        self._gpus = [FakeGpu(self._state, index) for index in range(len(gpus))]
        self._before: list[tuple[ctypes.CDLL | None, str | None]] = []  # one for each time that it was entered

    @property
    def environment(self) -> dict[str, str]:
        """What child processes need in their environment to meet this driver."""
        path = os.environ.get("LD_LIBRARY_PATH")
        folders = [str(self.library.parent)] + ([path] if path else [])
        return {"FAKE_NVML_STATE": str(self.state_path), "LD_LIBRARY_PATH": os.pathsep.join(folders)}

    def gpu(self, index: int) -> FakeGpu:
        """The GPU that NVML gives this index."""
        return self._gpus[index]

    def advance(self, seconds: float) -> None:
        """Let time pass, for drivers whose time is virtual."""
        with self._state.change() as page:
            assert page.is_virtual, "this driver's time is the real one"
            page.virtual_ns += round(seconds * 1e9)

    def fault(self, fault: Fault, *, functions: str | None = None, first: int = 1, times: int = 0) -> None:
        """Have something go wrong, on whatever GPU.

        Args:
            functions: A pattern of the functions that fail, instead of those that the fault is known for.
            first: The call, of all that match and counted from 1, from which on they fail.
            times: How many of them fail; 0 is all.
        """
        with self._state.change() as page:
            faults.place(page, fault, None, functions, first, times)

    def mend(self) -> None:
        """Take all faults away."""
        with self._state.change() as page:
            for index in range(FAULTS):
                page.faults[index] = FaultRecord()

    def setter_calls(self) -> list[SetterCall]:
        """All calls so far that were to change something, by whatever process, in their order.

        Raises:
            BufferError: There were more than 256: what was not set could not be told.
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

        self._before.append((pynvml.nvmlLib, os.environ.get("FAKE_NVML_STATE")))
        _leave(pynvml, ctypes.CDLL(str(self.library)))
        os.environ["FAKE_NVML_STATE"] = str(self.state_path)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import pynvml

        library, path = self._before.pop()
        _leave(pynvml, library)
        os.environ.pop("FAKE_NVML_STATE")
        if path is not None:
            os.environ["FAKE_NVML_STATE"] = path


def _range(lock_mhz: Any) -> tuple[int, int] | None:
    return (lock_mhz[0], lock_mhz[1]) if lock_mhz[1] else None


def _leave(pynvml: Any, library: ctypes.CDLL | None) -> None:
    """Give the present library up for another one, as if nobody had ever initialised NVML in this process."""
    zeus: Any = sys.modules.get("zeus.device.gpu")
    if zeus is not None:
        zeus._gpus = None
        zeus.nvml_is_available.cache_clear()
    gc.collect()  # zeus shuts NVML down when its lists of GPUs are collected: not later, in another test
    while pynvml._nvmlLib_refcount:
        pynvml.nvmlShutdown()
    pynvml.nvmlLib = library
    pynvml._nvmlGetFunctionPointer_cache.clear()
