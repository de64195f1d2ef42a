"""Processor time and memory of a run's controller, by the kernel's numbers: no other process of the run counts."""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

_LOOK_S = 0.2


@dataclass(frozen=True)
class ControllerCost:
    """Cost of one run.

    Attributes:
        wall_s: Time of the whole command.
        peak_bytes: Most resident memory of the controller.
        controller_s: Processor time of the controller with all its threads.
        jobs_wall_s: Time from the beginning of the first job; `jobs_s` is the processor time of the controller in it.
        samples: Time (s, Unix) and processor time (s) of the controller until then, several times a second.
    """

    wall_s: float
    peak_bytes: int
    controller_s: float
    jobs_wall_s: float
    jobs_s: float
    samples: tuple[tuple[float, float], ...] = ()

    def share(self, from_unix_s: float, to_unix_s: float) -> float:
        """Processor time of the controller between two times (s, Unix) / the time between them."""
        inside = [each for each in self.samples if from_unix_s <= each[0] <= to_unix_s]
        (began_s, before_s), (ended_s, after_s) = inside[0], inside[-1]
        return (after_s - before_s) / (ended_s - began_s)


def watched(process: subprocess.Popen[bytes], runs: Path) -> ControllerCost:
    """Cost of a command that was just started, when it has ended.

    Args:
        runs: Folder of its runs.
    """
    began_s = time.monotonic()
    peak_bytes, controller_s = 0, 0.0
    first: tuple[float, float] | None = None  # time, and processor time until then
    samples: list[tuple[float, float]] = []
    while process.poll() is None:
        try:
            status, stat = (Path(f"/proc/{process.pid}/{each}").read_text() for each in ("status", "stat"))
        except OSError:
            continue
        if high := re.search(r"VmHWM:\s*(\d+) kB", status):
            peak_bytes = int(high[1]) << 10
        fields = stat.rpartition(")")[2].split()
        controller_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        samples.append((time.time(), controller_s))
        if first is None and any(runs.glob("latest/jobs/*/stdout.log")):
            first = time.monotonic(), controller_s
        time.sleep(_LOOK_S)
    ended_s = time.monotonic()
    jobs_began_s, until_then_s = first or (ended_s, controller_s)
    return ControllerCost(
        ended_s - began_s,
        peak_bytes,
        controller_s,
        ended_s - jobs_began_s,
        controller_s - until_then_s,
        tuple(samples),
    )
