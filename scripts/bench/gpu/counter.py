"""The GPU's energy counter against the power that the driver tells, integrated: at rest, busy, and in waves.

On some boards they differ (zeus issue 181). On an A100 or H100 the counter looks a quarter of the time, so a wave in
step with it, of just 100 ms, may be counted wrongly, and one of 137 ms should not.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ecoshare.devices.nvidia import nvml
from scripts.bench.benchmarking import Figure

LOAD = """
import sys, time, torch
period_s, share = float(sys.argv[1]), float(sys.argv[2])
one = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
print("ready", flush=True)
while True:
    began_s = time.perf_counter()
    while time.perf_counter() - began_s < share * period_s:
        one @ one
        torch.cuda.synchronize()
    time.sleep(max(0.0, began_s + period_s - time.perf_counter()))
"""

WAVES = {"busy": (0.1, 1.0), "waves of 100 ms": (0.1, 0.5), "waves of 137 ms": (0.137, 0.5)}
"""Period (s) of a load, and the part of it that is busy, by the words for it."""

_SETTLES_S, _WINDOW_S, _LOOK_S = 2.0, 4.0, 0.01


def figures() -> list[Figure]:
    """Difference of both for each load."""
    gpu = nvml.NvmlDevice(nvml.gpus()[0].uuid)
    try:
        found = [_figure(gpu, "at rest")]
        for name, wave in WAVES.items():
            with load(*wave):
                found.append(_figure(gpu, name))
        return found
    finally:
        gpu.close()


def difference(gpu: nvml.NvmlDevice, seconds: float) -> tuple[float, float]:
    """Joules of the counter / integrated power - 1, and the mean power (W), over some seconds."""
    began_s, first_j = time.monotonic(), gpu.energy_j()
    before_s, integrated_j = began_s, 0.0
    while before_s < began_s + seconds:
        time.sleep(_LOOK_S)
        power_w, now_s = gpu.state().power_w, time.monotonic()
        if power_w is None:
            raise RuntimeError("this board tells no power")
        integrated_j, before_s = integrated_j + power_w * (now_s - before_s), now_s
    return (gpu.energy_j() - first_j) / integrated_j - 1.0, integrated_j / (before_s - began_s)


def _figure(gpu: nvml.NvmlDevice, name: str) -> Figure:
    time.sleep(_SETTLES_S)  # the power that is told may be the mean of a second
    part, power_w = difference(gpu, _WINDOW_S)
    note = f"{part:+.1%} of {power_w:.0f} W"
    return Figure(f"counter against integrated power, {name}", abs(part), "", "<= 0.05", note)


@contextmanager
def load(period_s: float, share: float) -> Iterator[None]:
    """Context manager: the GPU is busy for a part of each period (s)."""
    words = [sys.executable, "-c", LOAD, str(period_s), str(share)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.communicate()
