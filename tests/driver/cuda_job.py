"""Process with the stand-in for CUDA that makes one call after the other, as a test tells it to."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from tests.driver.cuda_standin import StandIn
from tests.driver.fake import FakeDriver
from tests.lane.forked import ForkedJobs

GIB = 1 << 30
CONTEXT_BYTES = 300 << 20
_ANSWER_S = 30.0


class CudaJob:
    """Forked process on a GPU of a driver that this process has entered.

    Attributes:
        pid: Process number.
    """

    def __init__(self, jobs: ForkedJobs, driver: FakeDriver, gpu: int = 1) -> None:
        """Start the process, which uses no CUDA before its first call."""
        self._orders, orders = multiprocessing.Pipe()

        def obey() -> None:
            faulthandler.disable()  # pytest's would print where a killed process was
            os.environ["CUDA_VISIBLE_DEVICES"] = driver.gpu(gpu).uuid
            calls = _calls(StandIn(0.5, 0.2, CONTEXT_BYTES))
            while True:
                _obey(orders, calls)

        self.pid = jobs.start(obey)

    def tell(self, call: str, *args: Any) -> None:
        """Let the process make a call. The test goes on when it is about to begin it."""
        self._orders.send((call, args))
        self._receive()

    def ended_at_s(self) -> float:
        """Time (s) of the monotonic clock at which the call ended.

        Raises:
            EOFError: The process has died.
        """
        return float(self._receive())

    def call(self, call: str, *args: Any) -> None:
        """Let the process make a call, and wait for its end."""
        self.tell(call, *args)
        self.ended_at_s()

    def _receive(self) -> Any:
        assert self._orders.poll(_ANSWER_S), "the process does not answer"
        return self._orders.recv()


def _calls(gpu: StandIn) -> dict[str, Callable[..., object]]:
    return {
        "allocate": gpu.allocate,
        "work": gpu.work,
        "synchronize": torch.cuda.synchronize,
        "empty_cache": torch.cuda.empty_cache,
        "event": _record_and_wait,
        "name_thread": _name_a_thread,
    }


def _obey(orders: Connection, calls: dict[str, Callable[..., object]]) -> None:
    name, args = orders.recv()
    orders.send("begins")
    calls[name](*args)
    orders.send(time.monotonic())


def _record_and_wait() -> None:
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    event.synchronize()


def _name_a_thread(name: str) -> None:
    """Start a thread with this name, as the kernel shows it."""
    is_named = threading.Event()

    def live() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)
        is_named.set()
        threading.Event().wait()

    threading.Thread(target=live, daemon=True).start()
    is_named.wait()
