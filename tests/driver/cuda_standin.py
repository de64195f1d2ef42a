"""Stand-in for CUDA in a job's process if torch was built without it; it loads a fake driver's GPU with the work.

::

    script ──work(0.02 s)──► queue ──► a thread: the device ──Pretend──► the fake driver's GPU
       │    returns at once               ▲                 on with the first of the queue, off when it is empty
       └──synchronize, Event.synchronize──┘ wait for it

All processes on the GPU have one memory (`device_memory.py`): a request that exceeds what the others leave fails, and
the context of a process counts. Only calls that ecoshare makes to `torch.cuda` are replaced: tensors stay on the CPU,
and `is_available()` is false. The calls that wait for CUDA's first use are made by torch itself.

While the process is parked (`cuda_processes.py`), its calls block as those of CUDA do, and a synchronisation kills it.

A rank of a gang sees the GPUs of all ranks, and its own by `LOCAL_RANK`. The first one is the current one, as for a
script that never calls `set_device`: a call that names another GPU, or none, does nothing to the rank's own.

In a script that runs as a job::

    gpu = StandIn(compute=0.8, memory=0.3, context_bytes=300 << 20)
    gpu.allocate(1 << 30)
    gpu.work(0.02)
"""

from __future__ import annotations

import collections
import contextlib
import os
import threading
import time
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from ecoshare.lane import cuts
from tests.driver import forked
from tests.driver.caching import CachingAllocator
from tests.driver.cuda_processes import OwnCudaProcess
from tests.driver.device_memory import DeviceMemory
from tests.driver.pretend import Pretend
from tests.driver.state import State


class StandIn:
    """Stand-in for the GPU that the environment leaves visible: by UUID or by HIP number. Make one a process.

    Attributes:
        own: Number of the GPU among the visible ones.
    """

    def __init__(self, compute: float, memory: float, context_bytes: int, responds: bool = False) -> None:
        """Replace the functions; nothing is on the GPU before the first use.

        Args:
            compute: Part of the GPU's arithmetic that the work uses while it runs, 0 to 1.
            memory: Part of the memory bandwidth that the work uses, 0 to 1.
            context_bytes: Memory of the process beside the memory that its allocator reserves.
            responds: Whether the arithmetic takes longer at lower clocks, as on a GPU; else times ignore clocks.
        """
        page = State(os.environ["FAKE_NVML_STATE"]).read()
        uuids = [gpu.uuid.decode() for gpu in page.gpu[: page.gpus]]
        hip = os.environ.get("HIP_VISIBLE_DEVICES")  # torch for ROCm counts so
        visible = os.environ["CUDA_VISIBLE_DEVICES"].split(",") if not hip else [""]
        self.own = int(os.environ["LOCAL_RANK"]) if len(visible) > 1 else 0
        index = int(hip) if hip else uuids.index(visible[self.own])
        self._total_bytes = int(page.gpu[index].memory_bytes)
        self._compute, self._memory, self._context_bytes = compute, memory, context_bytes
        self._pretend = Pretend(gpu=index)
        self._clock = _Clock(uuids[index], compute / (compute + memory)) if responds else None
        self.memory = DeviceMemory(f"{os.environ['FAKE_NVML_STATE']}.memory{index}", self._total_bytes)
        self._allocator = CachingAllocator(self._resize, torch.OutOfMemoryError, self._total_bytes)
        self._changed = threading.Condition()
        self._queue: collections.deque[tuple[float, float]] = collections.deque()  # (asked for at, takes), seconds
        self._asked = self._done = 0
        self._runs = False
        self._process: OwnCudaProcess | None = None
        self._replace()

    def allocate(self, size_bytes: int) -> None:
        """Allocate memory for a tensor."""
        self._begin()
        with self._call():
            self._allocator.allocate(size_bytes)

    def free(self, size_bytes: int) -> None:
        """Free the memory of a tensor."""
        self._allocator.free(size_bytes)

    def work(self, seconds: float) -> None:
        """Let the device be busy for this time (s), after all earlier work."""
        process = self._begin()
        with process.call(), self._changed:
            process.works(True)
            self._queue.append((time.monotonic(), seconds))
            self._asked += 1
            self._changed.notify_all()

    def stretch(self) -> float:
        """Time of work at the present clocks / time at the largest ones; 1 if it does not respond to clocks."""
        return self._clock.stretch() if self._clock is not None else 1.0

    def _begin(self) -> OwnCudaProcess:
        """Initialise CUDA at its first use, as torch does, and make the calls that wait for that."""
        if self._process is not None:
            return self._process
        cuts._BESIDE.add("tests")  # a call is one operation, as that of a driver: no turn is cut between its bytecodes
        with (
            mock.patch.multiple(torch._C, create=True, _cuda_getDeviceCount=lambda: 0, _cuda_init=lambda: None),
            mock.patch.object(torch.cuda, "_cudart", self),
        ):
            torch.cuda.init()  # type: ignore[no-untyped-call]
        self._process = process = OwnCudaProcess(os.environ["FAKE_NVML_STATE"])
        with process.call():
            if not self.memory.resize(self._context_bytes):
                raise torch.OutOfMemoryError("the device has no room for a context")
            self._tell()
        threading.Thread(target=self._be_the_device, args=(process,), daemon=True).start()
        return process

    def _call(self) -> AbstractContextManager[None]:
        """Context manager: a CUDA call. Before CUDA's first use, it does nothing."""
        return contextlib.nullcontext() if self._process is None else self._process.call()

    def _be_the_device(self, process: OwnCudaProcess) -> None:
        free_s = 0.0
        with self._changed:
            while True:
                self._changed.wait_for(lambda: bool(self._queue))
                self._runs = True
                self._tell()
                while self._queue:
                    asked_s, takes_s = self._queue[0]
                    free_s = max(free_s, asked_s) + takes_s * self.stretch()
                    while (rest_s := free_s - time.monotonic()) > 0.0:
                        self._changed.wait(rest_s)
                    self._queue.popleft()
                    self._done += 1
                    self._changed.notify_all()
                self._runs = False
                self._tell()
                process.works(False)

    def _tell(self, reserved_bytes: int | None = None) -> None:
        """Report the load of this process to the driver, with the memory that its allocator has or is about to have."""
        reserved_bytes = self._allocator.reserved.current if reserved_bytes is None else reserved_bytes
        parts = (self._compute, self._memory) if self._runs else (0.0, 0.0)
        self._pretend.load(None, *parts, used_bytes=self._context_bytes + reserved_bytes)

    def _resize(self, size_bytes: int) -> bool:
        if not self.memory.resize(self._context_bytes + size_bytes):
            return False
        with self._changed:
            self._tell(size_bytes)
        return True

    def _wait_for(self, count: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._done >= count)

    def _is_own(self, device: int | None) -> bool:
        return (device or 0) == self.own

    def _synchronize(self, device: int | None = None) -> None:
        if not self._is_own(device):
            return
        with contextlib.nullcontext() if self._process is None else self._process.synchronize():
            self._wait_for(self._asked)

    def _empty_cache(self) -> None:
        with self._call():
            self._allocator.empty_cache()

    def _info(self, _device: object = None) -> tuple[int, int]:
        with self._call():
            return self.memory.info()

    def _limit(self, fraction: float, device: int | None = None) -> None:
        if not self._is_own(device):
            return
        with self._call():  # up to torch 2.8, the allocator asks CUDA for the size of the device
            self._allocator.cap_bytes = int(fraction * self._total_bytes)

    def _record(self, what: str | None, **_how: Any) -> None:
        self._allocator.history = None if what is None else []

    def _replace(self) -> None:
        gpu, allocator = self, self._allocator

        class Event:
            """Mark in the only stream."""

            def __init__(self, blocking: bool = False) -> None:
                self._place = 0

            def record(self, stream: int | None = None) -> None:
                with gpu._call():
                    self._place = gpu._asked if gpu._is_own(stream) else 0

            def synchronize(self) -> None:
                with gpu._call():
                    gpu._wait_for(self._place)

        replaced: dict[Any, dict[str, Any]] = {
            torch.cuda: {
                "Event": Event,
                "current_device": lambda: 0,
                "current_stream": lambda device=None: device,
                "empty_cache": self._empty_cache,
                "get_device_properties": lambda _device: SimpleNamespace(total_memory=self._total_bytes),
                "is_current_stream_capturing": lambda: False,
                "mem_get_info": self._info,
                "memory_stats": lambda _device: allocator.statistics(),
                "reset_peak_memory_stats": lambda _device: allocator.reset_peaks(),
                "set_per_process_memory_fraction": self._limit,
                "synchronize": self._synchronize,
            },
            torch.cuda.memory: {
                "_record_memory_history": self._record,
                "_snapshot": lambda: {"device_traces": [allocator.history]},
            },
            torch._C: {"_cuda_isHistoryEnabled": lambda: allocator.history is not None},
        }
        for module, functions in replaced.items():
            for name, function in functions.items():
                setattr(module, name, function)


class _Clock:
    """Effect of the GPU's clock on the time of its work."""

    def __init__(self, uuid: str, share: float) -> None:
        """Open the GPU; `share` is the part of the work's time that its clock changes."""
        import pynvml

        forked.find_library()
        pynvml.nvmlInit()
        self._nvml, self._share = pynvml, share
        self._gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        self._highest_mhz = pynvml.nvmlDeviceGetMaxClockInfo(self._gpu, pynvml.NVML_CLOCK_SM)

    def stretch(self) -> float:
        """Time of the work relative to its time at the highest clock."""
        now_mhz = self._nvml.nvmlDeviceGetClockInfo(self._gpu, self._nvml.NVML_CLOCK_SM)
        longer: float = 1.0 - self._share + self._share * self._highest_mhz / now_mhz
        return longer
