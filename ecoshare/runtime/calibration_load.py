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
from typing import Any

from ecoshare.lane.confinement import confine
from ecoshare.lane.processes import die_with_parent
from ecoshare.profiling.device_speeds import COMPUTE, MEMORY

_WARM_UP = 0.25
"""Part of the time before the iterations that count: clocks rise, caches fill, kernels are chosen."""

_SIDES = {"cpu": 1024, "cuda": 4096}
"""Number of rows and columns of the matrices: a product keeps the device busy for 1 ms or more."""

_ELEMENTS = {"cpu": 16 << 20, "cuda": 64 << 20}
"""Number of elements of four bytes that are read, and written elsewhere: more than a cache holds."""

_REPEATS = {"cpu": 1, "cuda": 10}
"""Operations in an iteration, after which the host waits for the device."""


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
    loads: dict[str, Callable[[], object]] = {}
    for line in sys.stdin:
        name, _, seconds = line.rpartition(" ")
        if name not in loads:
            loads[name] = {COMPUTE: _products, MEMORY: _copies}[name](torch, kind)
        wait = torch.cuda.synchronize if kind == "cuda" else _nothing
        _tell(_times(loads[name], _REPEATS[kind], wait, float(seconds)))


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


def _products(torch: Any, kind: str) -> Callable[[], object]:
    side = _SIDES[kind]
    number = torch.float16 if kind == "cuda" else torch.float32  # as training on GPUs: the units that draw most power
    torch.manual_seed(0)
    left, right = (torch.randn(side, side, device=kind, dtype=number) for _ in range(2))
    out = torch.empty_like(left)
    return lambda: torch.mm(left, right, out=out)


def _copies(torch: Any, kind: str) -> Callable[[], object]:
    values = torch.ones(_ELEMENTS[kind], device=kind)
    out = torch.empty_like(values)
    return lambda: torch.add(values, 1.0, out=out)


def _nothing() -> None:
    pass


def _tell(content: object) -> None:
    print(json.dumps(content), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], [int(each) for each in sys.argv[3].split(",") if each])
