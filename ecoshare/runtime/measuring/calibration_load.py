"""Built-in loads that compare devices: one computes, one waits for memory. A program for a process of its own.

::

    controller                         this program, confined to one device
        │ ◄──────────────────────────── null                           torch is loaded
        │ ── (compute) 1.5 ───────────►  iterations for 1.5 s
        │ ◄──────────────────────────── [0.0083, 0.0082, …]            time (s) of each, without the first ones

The end of its input ends the program.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ecoshare.base.device import PROCESSORS
from ecoshare.knowledge.device_speeds import COMPUTE, MEMORY
from ecoshare.lane.confinement import confine
from ecoshare.lane.processes import die_with_parent

_WARM_UP = 0.25
"""Part of the time before the iterations that count: clocks rise, caches fill, kernels are chosen."""


@dataclass(frozen=True, slots=True)
class _Size:
    """Size of the loads on one kind of device.

    Attributes:
        side: Number of rows and columns of the matrices: a product keeps the device busy for 1 ms or more.
        elements: Number of elements of four bytes that are read, and written elsewhere: more than a cache holds.
        repeats: Number of operations in an iteration, after which the host waits for the device.
    """

    side: int
    elements: int
    repeats: int


_ON_PROCESSORS, _ON_GPU = _Size(1024, 16 << 20, 1), _Size(4096, 64 << 20, 10)


def main(parent: int, kind: str, processors: list[int]) -> None:
    """Answer requests until the end of the input.

    Args:
        parent: Number of the process that this one ends with.
        kind: Device type in torch. The environment shows one device of it.
        processors: Processors of a partition; none to use all.
    """
    die_with_parent(parent)
    confine(processors)  # before torch is loaded, which chooses its number of threads then
    import torch

    _tell(None)
    on_processors = kind == PROCESSORS
    size, wait = (_ON_PROCESSORS, _nothing) if on_processors else (_ON_GPU, torch.cuda.synchronize)
    loads: dict[str, Callable[[], object]] = {}
    for line in sys.stdin:
        name, _, seconds = line.rpartition(" ")
        if name not in loads:
            loads[name] = {COMPUTE: _products, MEMORY: _copies}[name](torch, kind, size)
        _tell(_times(loads[name], size.repeats, wait, float(seconds)))


def _times(load: Callable[[], object], repeats: int, wait: Callable[[], object], seconds: float) -> list[float]:
    """Times (s) of the iterations of a load, without those of the warm-up."""
    wait()
    began_s = last_s = time.perf_counter()
    found: list[float] = []
    while last_s - began_s < seconds or not found:
        for _ in range(repeats):
            load()
        wait()
        now_s = time.perf_counter()
        if last_s - began_s >= _WARM_UP * seconds:
            found.append(now_s - last_s)
        last_s = now_s
    return found


def _products(torch: Any, kind: str, size: _Size) -> Callable[[], object]:
    # Half precision keeps those units of a GPU busy that draw most power, like training does.
    number = torch.float32 if kind == PROCESSORS else torch.float16
    torch.manual_seed(0)
    left, right = (torch.randn(size.side, size.side, device=kind, dtype=number) for _ in range(2))
    out = torch.empty_like(left)
    return lambda: torch.mm(left, right, out=out)


def _copies(torch: Any, kind: str, size: _Size) -> Callable[[], object]:
    values = torch.ones(size.elements, device=kind)
    out = torch.empty_like(values)
    return lambda: torch.add(values, 1.0, out=out)


def _nothing() -> None:
    pass


def _tell(content: object) -> None:
    print(json.dumps(content), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], [int(each) for each in sys.argv[3].split(",") if each])
