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
    """

    wall_s: float
    peak_bytes: int
    controller_s: float
    jobs_wall_s: float
    jobs_s: float


def watched(process: subprocess.Popen[bytes], runs: Path) -> ControllerCost:
    """Cost of a command that was just started, when it has ended.

    Args:
        runs: Folder of its runs.
    """
    began_s = time.monotonic()
    peak_bytes, controller_s = 0, 0.0
    first: tuple[float, float] | None = None  # time, and processor time until then
    while process.poll() is None:
        try:
            status, stat = (Path(f"/proc/{process.pid}/{each}").read_text() for each in ("status", "stat"))
        except OSError:
            continue
        if high := re.search(r"VmHWM:\s*(\d+) kB", status):
            peak_bytes = int(high[1]) << 10
        fields = stat.rpartition(")")[2].split()
        controller_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        if first is None and any(runs.glob("latest/jobs/*/stdout.log")):
            first = time.monotonic(), controller_s
        time.sleep(_LOOK_S)
    ended_s = time.monotonic()
    jobs_began_s, until_then_s = first or (ended_s, controller_s)
    return ControllerCost(
        ended_s - began_s, peak_bytes, controller_s, ended_s - jobs_began_s, controller_s - until_then_s
    )
