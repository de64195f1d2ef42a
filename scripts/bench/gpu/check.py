"""All checks that need a GPU, in one command of under nine minutes; one JSON object with the machine's facts.

The command sets nothing on the GPU: no clocks, limits or modes. With several lanes ecoshare starts an MPS daemon and
ends it.

First the mix, the loop over packing, lanes and quantum with measured joules:

* energy and time of eight small jobs one after the other, all at once under time slices and under MPS, and shared by
  ecoshare; and whether each lost the same, bit for bit, in all ways (mix/figures.py).

Then the checks, as far as the nine minutes go; `--only` names one part:

* the same losses alone and shared (deterministic algorithms on), in one lane and in two;
* with two GPUs or more: a run over all of them, gangs with NCCL, torchrun, and joules of each GPU (several.py);
* ranks that never call `set_device`: they are paced on their own GPU, and have no context on another (ranks.py);
* what a hand-over costs with the device drained;
* the example mix one after the other, in one lane, in two lanes with MPS and without;
* a job that runs out of memory beside a healthy one, and one that is killed while both are clients of MPS;
* profiles: P, T and context against the allocator and nvidia-smi, joules an iteration over three windows, idle power,
  and what is attributed to two jobs side by side against what they take alone (profiles.py);
* the memory of eight trials in one process (a fused lane) and in eight, and whether fused examples lose the same;
* contexts, caches that are emptied and filled again, and three jobs with caches that do not fit together (memory.py);
* memory of jobs that goes to the host and back: its speed, equal numbers, and a run that parks (parked.py);
* scripts that use a GPU in other ways: streams, graphs, GradScaler, pinned memory, cudaMallocAsync, torch.compile
  and one with long iterations, which are cut (kinds.py);
* a service beside training: the same answers and losses, latencies, joules a request (services.py);
* the energy counter against the power that is told, integrated (counter.py);
* which knobs the board offers, read and not set.

`--device cpu` runs the mix on the processors, small and without joules, to try out everything but the GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

from ecoshare.devices.knob import GPU_CLOCK, MEMORY_CLOCK, KnobFault
from ecoshare.devices.nvidia import mps, nvml
from ecoshare.devices.nvidia.nvidia_knobs import GpuKnobs
from scripts.bench import fused
from scripts.bench.benchmarking import ROOT, Figure, Options, run_benchmark, say
from scripts.bench.gpu import counter, kinds, memory, parked, profiles, ranks, services, several
from scripts.bench.gpu.shared_run import share
from scripts.bench.job_file import JobEntry
from scripts.bench.mix import figures as mix_figures
from tests.lane.served_lane import ServedLane

LIMIT_S = 520.0
"""Time (s) for everything but torch's own start and the end: nine minutes are 540 s."""

LENGTH_S, QUICK_LENGTH_S = 20.0, 2.0
"""Time of each job of the mix alone."""

KEPT_S = 20.0
"""Part of `LIMIT_S` that the ways of the mix must leave: else the figures of finished ways would be lost."""

EXAMPLES = ROOT / "examples"
SIZES = {
    "mlp": ("--epochs", "4"),
    "cnn": ("--epochs", "2"),
    "transformer": ("--steps", "60"),
    "vae": ("--epochs", "4"),
    "gan": ("--steps", "200"),
    "gnn": ("--epochs", "60"),
}
HUNGRY = """
import torch
kept = []
model = torch.nn.Linear(64, 64, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100000):
    kept.append(torch.ones(1 << 28, dtype=torch.uint8, device="cuda"))
    model(torch.ones(8, 64, device="cuda")).sum().backward()
    optimizer.step()
"""


KILLED = """
import os, signal
import torch
model = torch.nn.Linear(4096, 4096, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    for _ in range(20):
        model(torch.ones(512, 4096, device="cuda")).sum().backward()
    optimizer.step()
os.kill(os.getpid(), signal.SIGKILL)
"""
"""Script that is killed while its kernels run."""


class CheckOptions(Options):
    """Options of this check.

    Attributes:
        device: `cuda`, or `cpu` to try out the mix.
        length: Seconds of each job of the mix alone; None for the usual length.
        only: Part to run: `mix`, `checks`, or one of `PARTS`; None for all.
    """

    device: str
    length: float | None
    only: str | None


def examples() -> list[JobEntry]:
    return [
        {"name": name, "script": str(EXAMPLES / f"{name}.py"), "args": [*args, "--device", "cuda"]}
        for name, args in SIZES.items()
    ]


def alone() -> tuple[dict[str, bytes], float]:
    """Output of each example by itself, and the time (s) of all one after the other."""
    printed = {}
    began_s = time.monotonic()
    for job in examples():
        done = subprocess.run([sys.executable, job["script"], *job["args"]], capture_output=True, check=False)
        printed[job["name"]] = done.stdout if done.returncode == 0 else b"failed: " + done.stderr[-300:]
    return printed, time.monotonic() - began_s


class OutOfTime(BaseException):
    """Raised when the time for a part of the check is over; no `except Exception` on the way catches it."""


@contextmanager
def within(limit_s: float) -> Iterator[None]:
    """Limit the time of a block. A command under way is killed, and ends the processes that it has started.

    Raises:
        OutOfTime: The block took longer.
    """

    def over(_number: int, _frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, max(limit_s, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


class Clock:
    """Clock of the whole check."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        """Start the clock."""
        self._until_s = time.monotonic() + limit_s

    def left_s(self) -> float:
        """Seconds until all must be over."""
        return self._until_s - time.monotonic()

    def take(self, part: str, measure: Callable[[], list[Figure]]) -> list[Figure]:
        """Figures of a part; if it fails or no time is left, a figure with the reason."""
        say(f"{part}: {self.left_s():.0f} s left")
        try:
            with within(self.left_s()):
                return measure()
        except OutOfTime:
            return [Figure(part, None, "", note=f"not done within the {LIMIT_S:g} s of the whole check")]
        except Exception as error:  # the other parts go on
            return [Figure(part, None, "", note=f"{type(error).__name__}: {str(error)[-300:]}")]


def measure(options: CheckOptions) -> list[Figure]:
    """All figures."""
    import torch

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that started processes are ended, too
    clock = Clock()
    if options.device == "cpu":
        return _mix(clock, "cpu", options.length or QUICK_LENGTH_S)
    if not torch.cuda.is_available():
        return [Figure("GPU", None, "", note="this machine has none")]
    figures = [Figure("GPUs", torch.cuda.device_count(), "", note=torch.cuda.get_device_name(0))]
    if options.only in PARTS:
        with tempfile.TemporaryDirectory(prefix="gpu-check-") as name:
            return figures + PARTS[options.only](clock, Path(name))
    if options.only != "checks":
        figures += _mix(clock, "cuda", options.length or (QUICK_LENGTH_S if options.quick else LENGTH_S))
    if options.only != "mix":
        figures += checks(clock)
    say("done")
    return figures


def _mix(clock: Clock, device: str, length_s: float) -> list[Figure]:
    return clock.take("mix", lambda: mix_figures.measure(device, length_s, lambda: clock.left_s() - KEPT_S))


def checks(clock: Clock) -> list[Figure]:
    """Figures of all parts but the mix."""
    figures = clock.take("knobs", _knobs) + _counter(clock)
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as name:
        folder = Path(name)
        printed: dict[str, bytes] = {}
        repeated: dict[str, bytes] = {}
        figures += clock.take("same losses alone and shared", lambda: _losses(folder, printed, repeated))
        figures += _several(clock, folder, repeated) + _ranks(clock, folder)
        figures += clock.take("fused lanes", lambda: fused.memory("cuda") + _fused(folder, printed))
        figures += clock.take("two lanes without MPS", lambda: _without_mps(folder))
        if "vae" in printed:
            figures += clock.take("out of memory", lambda: _out_of_memory(folder, printed))
            figures += clock.take("a killed client of MPS", lambda: _killed_client(folder, printed))
        figures += clock.take("profiles", lambda: profiles.figures(folder))
        figures += _memory(clock, folder) + _services(clock, folder) + _kinds(clock, folder)
    return figures


def _counter(clock: Clock) -> list[Figure]:
    return clock.take("energy counter", counter.figures)


def _memory(clock: Clock, folder: Path) -> list[Figure]:
    figures = clock.take("memory", lambda: memory.figures(folder))
    return figures + clock.take("parked jobs", lambda: parked.figures(folder / "parked"))


def _services(clock: Clock, folder: Path) -> list[Figure]:
    return clock.take("services", lambda: services.figures(folder / "services"))


def _kinds(clock: Clock, folder: Path) -> list[Figure]:
    return clock.take("kinds of scripts", lambda: kinds.figures(folder / "kinds"))


def _ranks(clock: Clock, folder: Path) -> list[Figure]:
    return clock.take(ranks.PART, lambda: ranks.figures(folder / "ranks", several.gpus()))


def _losses(folder: Path, printed: dict[str, bytes], repeated: dict[str, bytes]) -> list[Figure]:
    """The examples alone, twice, and shared.

    Args:
        printed: Filled with the output of each alone.
        repeated: Filled with the output of those that print the same twice.
    """
    first, in_turn_s = alone()
    printed.update(first)
    again, _ = alone()
    repeat = [name for name in printed if printed[name] == again[name] and not printed[name].startswith(b"failed")]
    repeated.update({name: printed[name] for name in repeat})
    figures = [
        Figure("examples that repeat alone", len(repeat), "of 6", note=", ".join(repeat)),
        Figure("one after the other", in_turn_s, "s"),
    ]
    ways = {
        "one lane": ("--lanes", "1", "--jobs-per-lane", "6", "--no-profiles"),
        "two lanes": ("--lanes", "2", "--jobs-per-lane", "3", "--no-profiles"),
    }
    for way, lanes in ways.items():
        run = share(folder / way.replace(" ", "-"), examples(), *lanes)
        same = [each for each in repeat if run.printed(each) == printed[each]]
        mps = json.loads((run.folder / "environment.json").read_text()).get("mps", "")
        figures.append(Figure(f"same losses, {way}", len(same), f"of {len(repeat)}", f">= {len(repeat)}", mps))
        figures.append(Figure(f"shared, {way}", run.wall_s, "s", note=mps))
        bad = [f"{job['name']}: {job['error']}" for job in run.summary["jobs"] if job["error"]]
        figures += [Figure(f"failed in {way}", None, "", note=each) for each in bad]
        handed = sum(job["handovers"] or 0 for job in run.summary["jobs"])
        figures.append(Figure(f"hand-overs, {way}", handed, ""))
    return figures


def _several(clock: Clock, folder: Path, repeated: dict[str, bytes]) -> list[Figure]:
    """Figures of all parts that need two GPUs."""
    (own := folder / "several").mkdir()
    parts = several.parts(own, several.gpus(), examples(), repeated)
    return [figure for part, measure in parts.items() for figure in clock.take(part, measure)]


PARTS: dict[str, Callable[[Clock, Path], list[Figure]]] = {
    "counter": lambda clock, _folder: _counter(clock),
    "kinds": _kinds,
    "memory": _memory,
    "ranks": _ranks,
    "several": lambda clock, folder: _several(clock, folder, {}),
    "services": _services,
}
"""Checks that can be run alone, by their names for `--only`."""


def _fused(folder: Path, printed: dict[str, bytes]) -> list[Figure]:
    """Examples, two copies of each at once as threads of one process, against their output alone."""
    same = []
    for job in examples():
        place = folder / "fused" / job["name"]
        place.mkdir(parents=True)
        lane = ServedLane(place)
        try:
            for copy in ("one", "two"):
                lane.start(copy, Path(job["script"]), *job["args"], device="cuda")
            ends = [lane.ended(copy) for copy in ("one", "two")]
            alike = all(lane.printed(copy) == printed.get(job["name"]) for copy in ("one", "two"))
            same += [job["name"]] if alike and all(end.outcome == "completed" for end in ends) else []
        finally:
            lane.close()
    return [Figure("same losses, two in one process", len(same), f"of {len(printed)}", note=", ".join(same))]


def _knobs() -> list[Figure]:
    """Knobs of the GPU, as `ecoshare devices` reads them."""
    done = subprocess.run(
        [sys.executable, "-m", "ecoshare", "devices", "--json"], capture_output=True, text=True, check=True
    )
    gpu = json.loads(done.stdout)[0]
    found = [
        Figure(
            f"values of {knob['name']}",
            knob["values"],
            "",
            note=_range(knob),
        )
        for knob in gpu["knobs"]
    ]
    lacking = [Figure(f"values of {name}", 0, "", note=why) for name, why in gpu["missing"].items()]
    return [*found, *lacking, Figure("may be set", float(gpu["may_be_set"]), "", note=gpu["how"]), *_locks()]


def _locks() -> list[Figure]:
    """Whether clocks look locked while the GPU has little to do: nothing has locked them."""
    figures, knobs = [], GpuKnobs(nvml.gpus()[0].uuid)
    try:
        with counter.load(0.05, 0.02):
            for name in {knob.spec.name for knob in knobs.knobs} & {GPU_CLOCK, MEMORY_CLOCK}:
                said = "no sign of a lock"
                try:
                    said = "at its highest" if knobs.looks_unlocked(name) else said
                except KnobFault as fault:
                    said = f"{fault.cause.value}: {fault}"
                figures.append(Figure(f"{name} under light load", None, "", note=said))
    finally:
        knobs.close()
    return figures


def _range(knob: Mapping[str, Any]) -> str:
    """Values of a knob in words. A power profile has names, and so no range."""
    spans = f"{knob['lowest']:g} to {knob['highest']:g} {knob['unit']}, " if knob["lowest"] is not None else ""
    return f"{spans}now {knob['present']}"


def _without_mps(folder: Path) -> list[Figure]:
    """Two lanes by the driver's time slices: neither the program of the daemon nor a daemon of the machine is there."""
    with patch.dict(os.environ, without_program(mps.CONTROL, folder / "programs")):
        os.environ["CUDA_MPS_PIPE_DIRECTORY"] = str(folder / "no-daemon")
        run = share(folder / "slices", examples(), "--lanes", "2", "--jobs-per-lane", "3", "--no-profiles")
    return [Figure("shared, two lanes without MPS", run.wall_s, "s")]


def without_program(name: str, folder: Path) -> dict[str, str]:
    """Variables with a path on which all programs are found but this one.

    Args:
        name: Name of the program.
        folder: Folder to make, with links to the programs beside it.
    """
    folder.mkdir(parents=True)
    places = os.environ["PATH"].split(":")
    for place in places:
        if not (Path(place) / name).exists():
            continue
        for each in sorted(Path(place).iterdir()):
            if each.name != name and not (folder / each.name).exists():
                (folder / each.name).symlink_to(each)
    return {"PATH": ":".join(str(folder) if (Path(place) / name).exists() else place for place in places)}


def _out_of_memory(folder: Path, printed: dict[str, bytes]) -> list[Figure]:
    return _beside_healthy(folder, "hungry", HUNGRY, printed, "--memory", "8 GiB")


def _killed_client(folder: Path, printed: dict[str, bytes]) -> list[Figure]:
    return _beside_healthy(folder, "killed", KILLED, printed, "--lanes", "2", "--jobs-per-lane", "1")


def _beside_healthy(folder: Path, name: str, text: str, printed: dict[str, bytes], *options: str) -> list[Figure]:
    """Whether a script fails, and an example beside it does what it does alone."""
    script = folder / f"{name}.py"
    script.write_text(text)
    healthy = next(job for job in examples() if job["name"] == "vae")
    run = share(folder / name, [{"name": name, "script": str(script)}, healthy], *options, "--no-profiles")
    states = {job["name"]: job["state"] for job in run.summary["jobs"]}
    same = run.printed("vae") == printed["vae"]
    error = next(job["error"] for job in run.summary["jobs"] if job["name"] == name)
    return [
        Figure(f"{name} job failed", float(states[name] == "failed"), "", ">= 1", error or ""),
        Figure(
            f"its neighbour did the same as alone, {name}", float(states["vae"] == "completed" and same), "", ">= 1"
        ),
    ]


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu tries out the mix")
    parser.add_argument("--length", type=float, metavar="S", help="seconds of each job of the mix alone")
    parser.add_argument("--only", choices=("mix", "checks", *PARTS), help="a part of it")


def main() -> None:
    """Run it from the command line."""
    run_benchmark("gpu_check", __doc__, measure, CheckOptions, _add_options, script="gpu_check.py")


if __name__ == "__main__":
    main()
