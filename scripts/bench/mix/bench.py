"""Common parts of all ways of gpu_check.py's mix: the jobs, the device and its meter, and the end of all processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ecoshare.base.device import DeviceInfo
from ecoshare.devices import registry
from ecoshare.devices.meter import Meter
from ecoshare.devices.nvidia import mps
from ecoshare.errors import UnfitEnvironment
from ecoshare.lane import interpreter
from ecoshare.runtime.nodes import cleanup
from scripts.bench.benchmarking import JOBS

JOB = JOBS / "mix_job.py"

PACE_LIMIT_S = 90.0
START_S = 15.0
"""Longest time for a plain process to load torch and make its data, and for an MPS daemon to end."""

LOOK_EVERY_S = 0.02


class WayFailed(Exception):
    """Reason why a way has no figures."""


@dataclass(frozen=True)
class Job:
    """Job of the mix: a kind of mix_job.py, and its number of steps."""

    kind: str
    steps: int

    def command(self, device: str) -> list[str]:
        """Command line of a plain process, without the interpreter."""
        return [str(JOB), self.kind, "--steps", str(self.steps), "--device", device]


@dataclass(frozen=True)
class Way:
    """Result of the mix in one way.

    Attributes:
        jcts_s: JCT of each job; all arrive at the beginning.
        printed: Standard output by job.
        energy_j: Joules of the whole device; None without a meter.
        own_j: Joules by ecoshare's own account; None in other ways.
        note: Remark on the way, such as the evidence of MPS.
    """

    time_s: float
    jcts_s: Sequence[float]
    printed: Mapping[str, bytes]
    energy_j: float | None = None
    own_j: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Bench:
    """Device and folder of the mix.

    Attributes:
        device: Device of all ways.
        folder: Folder of this mix alone.
        token: Mark of the processes that the mix starts, as of those of a run.
        left_s: Gives the time (s) until all must be over.
        meter: Meter of the device's joules; None if there is none.
    """

    device: DeviceInfo
    folder: Path
    token: str
    left_s: Callable[[], float]
    meter: Meter | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Environment of plain processes: this device alone, and clients of no MPS daemon."""
        pipes = {"CUDA_MPS_PIPE_DIRECTORY": str(self.folder / "no-daemon")}
        own = {
            name: value or "" for name, value in registry.vendor(self.device.vendor).environment([self.device]).items()
        }
        return {**os.environ, **own, **pipes, cleanup.TOKEN: self.token}

    def written(self, kind: str, stream: str) -> Path:
        """File with the output of a plain process."""
        return self.folder / f"{kind}.{stream}"


def mix(bench: Bench, length_s: float) -> list[Job]:
    """Mix with as many steps of each kind as take a given time alone.

    Raises:
        WayFailed: The kinds cannot be run alone.
    """
    line = [sys.executable, str(JOB), "--pace", "--device", bench.device.kind]
    try:
        done = subprocess.run(
            line, env=bench.environment, capture_output=True, text=True, check=True, timeout=PACE_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        raise WayFailed(f"the pace of the jobs was not known after {PACE_LIMIT_S:g} s") from None
    except subprocess.CalledProcessError as error:
        raise WayFailed(f"the pace of the jobs: {last_line(error.stderr)}") from error
    return [Job(kind, max(1, round(length_s / step_s))) for kind, step_s in json.loads(done.stdout).items()]


@contextmanager
def swept(bench: Bench) -> Iterator[None]:
    """Context that leaves none of its processes; if this process is killed, ecoshare's guard ends them."""
    guard = subprocess.Popen(
        interpreter.program_command("ecoshare.runtime.nodes.guard", bench.token, str(bench.folder), ""),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        cleanup.end_all(bench.token)
        with suppress(OSError):
            guard.communicate(b"done")


@contextmanager
def meter_of(device: DeviceInfo) -> Iterator[tuple[Meter | None, str]]:
    """Energy counter of the GPU, or None and the reason why it cannot be read."""
    if device.kind == "cpu":
        yield None, "joules are read from a GPU's counter only"
        return
    with ExitStack() as undo:
        try:
            gpu = registry.open_device(device)
            undo.callback(gpu.close)
            meter: Meter = gpu.open_meter()
        except UnfitEnvironment as error:
            yield None, str(error)
        else:
            yield meter, ""


@contextmanager
def private_daemon(bench: Bench) -> Iterator[mps.Daemon]:
    """Context with an MPS daemon, which is gone afterwards even if it came up only in part."""
    try:
        yield mps.start(bench.folder, [str(bench.device.uuid)], {**os.environ, cleanup.TOKEN: bench.token})
    finally:
        mps.end(mps.Daemon(bench.folder / "mps", ours=True))
        until_s = time.monotonic() + START_S
        while cleanup.members(bench.token) and time.monotonic() < until_s:
            time.sleep(LOOK_EVERY_S)
        cleanup.end_all(bench.token)


def last_line(text: str | None) -> str:
    """Last line of a process's output, for a note."""
    lines = (text or "").strip().splitlines()
    return lines[-1][-300:] if lines else "it said nothing"
