"""Ways in which bench_services.py runs services and training: as plain processes, or through ecoshare in one lane.

In the lane, each has a process, or all services are threads of one process.

All jobs have one thread for their models. Unless said otherwise, they have one processor in common. Arrivals are equal
in all ways. Services begin at once, when all of them have loaded their models and the training is warm:

    start ──► every job writes NAME.ready ──► `go` ──► every service writes NAME.json ──► `done` ends all jobs

A thread runs with the turn and cannot wait for a file. So threads begin to serve when they are loaded, and their first
requests come when all of them are.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ecoshare.lane.processes import proportional_bytes
from ecoshare.lane.serving.request_intervals import RequestInterval, RequestTotals, read
from ecoshare.runtime.nodes import cleanup
from scripts.bench.benchmarking import JOBS
from scripts.bench.job_file import JobEntry, write_jobs

KINDS = ("mlp", "cnn", "transformer")
"""Models of the services."""

SERVICE, TRAINING = str(JOBS / "service_job.py"), str(JOBS / "beside_job.py")
_READY_WITHIN_S, _DONE_WITHIN_S = 300.0, 120.0


@dataclass(frozen=True)
class Service:
    """Service of the benchmark.

    Attributes:
        kind: Model: `mlp`, `cnn` or `transformer`.
        arrivals_s: Times (s) of the requests from the start on.
        p99_s: Target (s).
        batch: Batch sizes that may be used.
    """

    name: str
    kind: str
    arrivals_s: Sequence[float]
    p99_s: float = 0.05
    batch: Sequence[int] = (1,)

    def arguments(self, folder: Path, device: str) -> list[str]:
        """Arguments of its script."""
        line = [self.kind, "--name", self.name, "--folder", str(folder), "--device", device]
        return [*line, "--p99-s", str(self.p99_s), "--batch", *map(str, self.batch)]


@dataclass(frozen=True)
class Served:
    """Result of a service.

    Attributes:
        intervals: Record of its requests.
        answers: Different answers to each request, by its number.
        from_s: Time (s) of its start on the monotonic clock.
        to_s: Time (s) of its end.
        processor_s: Processor time (s) in between.
    """

    intervals: list[RequestInterval]
    answers: dict[str, list[str]]
    from_s: float
    to_s: float
    processor_s: float

    @property
    def load(self) -> float:
        """Part of the time that it needs of its processor."""
        return self.processor_s / (self.to_s - self.from_s)


@dataclass
class Ran:
    """Result of all jobs in one way.

    Attributes:
        services: Result of each service, by name.
        ends_s: Time (s) at the end of each iteration of the training.
        losses: Loss of each iteration.
        memory_bytes: Memory of all processes, shared pages in proportion: after their last answers. Threads end with
            theirs, so it is that in the middle.
        summary: Summary of the run; empty for plain processes.
    """

    services: dict[str, Served] = field(default_factory=dict)
    ends_s: list[float] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    memory_bytes: int = 0
    summary: dict[str, Any] = field(default_factory=dict)

    def speed(self, from_s: float, to_s: float) -> float:
        """Iterations of the training per second between two times (s)."""
        return sum(from_s < each <= to_s for each in self.ends_s) / (to_s - from_s)


def request_times_s(kinds: Iterable[str]) -> dict[str, float]:
    """Processor time (s) of a request of each model alone, with caches that something else has used."""
    line = ["taskset", "--cpu-list", str(processor()), sys.executable, SERVICE, *kinds, "--time"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def poisson(rate_per_s: float, seconds: float, seed: int, from_s: float = 0.0) -> list[float]:
    """Arrivals (s) of a Poisson process."""
    draws, times_s, at_s = random.Random(seed), list[float](), 0.0
    while (at_s := at_s + draws.expovariate(rate_per_s)) < seconds:
        times_s.append(round(from_s + at_s, 6))
    return times_s


def kept_share(found: RequestTotals) -> float:
    """Part of the requests that were answered in time."""
    return (found.answered - found.late) / found.arrived


def processor() -> int:
    """The processor that all jobs share."""
    return min(os.sched_getaffinity(0))


def plain(
    folder: Path,
    services: Sequence[Service],
    layers: int = 0,
    nice: int = 0,
    passes: int = 1,
    serve_s: float = 0.0,
    on_one: bool = True,
) -> Ran:
    """Run plain processes beside each other.

    Args:
        folder: New folder.
        services: Services; none to train alone for `serve_s`.
        layers: Layers of the model that is trained; 0 for no training.
        passes: Passes of an iteration of the training.
        nice: Niceness of the training.
        serve_s: Time (s) to wait before `done`, if there is no service.
        on_one: Whether all have one processor in common.
    """
    folder.mkdir()
    lines = []
    for service in services:
        arrivals = folder / f"{service.name}.arrivals"
        arrivals.write_text("".join(f"{each}\n" for each in service.arrivals_s))
        lines.append([SERVICE, *service.arguments(folder, "cpu"), "--arrivals", str(arrivals), *_place(on_one)])
    processes = [_popen([sys.executable, *line], folder) for line in lines]
    if layers:
        line = [*(["nice", "-n", str(nice)] if nice else []), sys.executable, TRAINING, str(folder)]
        processes.append(_popen([*line, "--layers", str(layers), "--passes", str(passes), *_place(on_one)], folder))
    with _ended(processes):
        pids = [each.pid for each in processes]
        ran = _served(folder, services, bool(layers), processes, lambda: proportional_bytes(pids), serve_s)
    ran.services = {each.name: _read(folder, each.name, folder / f"{each.name}.jsonl") for each in services}
    return ran


def shared(
    folder: Path,
    services: Sequence[Service],
    layers: int = 0,
    device: str = "cpu",
    passes: int = 1,
    serve_s: float = 0.0,
    options: Sequence[str] = (),
    on_one: bool = True,
    threads_wait_s: float | None = None,
) -> Ran:
    """Run the same jobs through ecoshare, in one lane. The arguments are those of `plain`.

    Args:
        folder: New folder.
        services: Services; none to train alone for `serve_s`.
        layers: Layers of the model that is trained; 0 for no training.
        passes: Passes of an iteration of the training.
        device: Device of the run: the processor that all share, or a GPU.
        serve_s: Time (s) to wait before `done`, if there is no service.
        options: More options of the command.
        on_one: Whether all jobs have one processor in common. The controller may use any.
        threads_wait_s: Time (s) from the start of a service to its first request, if all are threads of one process;
            None for processes.
    """
    folder.mkdir()
    is_fused = threads_wait_s is not None
    kind = device.partition(":")[0]
    jobs: list[JobEntry] = []
    place = _place(on_one and kind == "cpu")
    for service in services:
        trace = folder / f"{service.name}.csv"
        arrivals_s = [each + (threads_wait_s or 0.0) for each in service.arrivals_s]
        trace.write_text("arrival_s\n" + "".join(f"{each}\n" for each in arrivals_s))
        described: dict[str, object] = {"p99": f"{service.p99_s} s", "batch": list(service.batch)}
        described["requests"] = {"trace": str(trace)}
        args = [*service.arguments(folder, kind), *place, *(["--thread"] if is_fused else [])]
        jobs.append({"name": service.name, "script": SERVICE, "args": args, "service": described})
        jobs[-1]["isolation"] = "lane" if is_fused else "process"
    if layers:
        args = [str(folder), "--layers", str(layers), "--passes", str(passes), "--device", kind, *place]
        jobs.append({"name": "training", "script": TRAINING, "args": args})
    line = [sys.executable, "-m", "ecoshare", "run", str(write_jobs(folder, jobs)), "--device", device]
    line += ["--policy", "fair", "--lanes", "1", "--jobs-per-lane", str(len(jobs)), "--no-profiles", "--no-report"]
    line += ["--json", "--control", "off", "--runs", str(folder / "runs"), *options]
    run = folder / "runs" / "latest"
    controller = _popen(line, folder)
    with _ended([controller]):

        def memory_bytes() -> int:
            token = json.loads((run / "environment.json").read_text())["token"]
            return proportional_bytes([controller.pid, *cleanup.members(token)])

        ran = _served(folder, services, bool(layers), [controller], memory_bytes, serve_s, threads_wait_s)
    ran.summary = json.loads((run / "summary.json").read_text())
    for service in services:
        record = run / "jobs" / service.name / "requests.jsonl"
        ran.services[service.name] = _read(folder, service.name, record)
    return ran


def _place(on_one: bool) -> list[str]:
    """Options of a script that put it on the processor that all share."""
    return ["--processor", str(processor())] if on_one else []


def _popen(line: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "errors").open("ab") as errors:
        return subprocess.Popen(
            line,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        )


@contextlib.contextmanager
def _ended(processes: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Wait for the end of processes; end them if the block fails."""
    try:
        yield
        for each in processes:
            each.wait(_DONE_WITHIN_S)
    finally:
        for each in processes:
            if each.poll() is None:
                each.terminate()
        for each in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                each.wait(30.0)


def _served(
    folder: Path,
    services: Sequence[Service],
    trains: bool,
    processes: Sequence[subprocess.Popen[bytes]],
    memory_bytes: Callable[[], int],
    serve_s: float,
    threads_wait_s: float | None = None,
) -> Ran:
    """Bring jobs from their start to their end.

    Raises:
        RuntimeError: A job fails, or takes too long.
    """

    def until(names: Sequence[str], within_s: float) -> None:
        limit_s = time.monotonic() + within_s
        while not all((folder / name).exists() for name in names):
            if any(each.poll() for each in processes) or time.monotonic() > limit_s:
                lacking = [name for name in names if not (folder / name).exists()]
                raise RuntimeError(f"{lacking[:3]} did not come: {(folder / 'errors').read_text()[-2000:]}")
            time.sleep(0.05)

    names = [each.name for each in services]
    until([f"{name}.ready" for name in [*names, *(["training"] if trains else [])]], _READY_WITHIN_S)
    (folder / "go").touch()
    serve_s = max((each.arrivals_s[-1] for each in services), default=serve_s)
    ran = Ran()
    if threads_wait_s is not None:
        time.sleep(threads_wait_s + serve_s / 2)
        ran.memory_bytes, serve_s = memory_bytes(), serve_s / 2
    time.sleep(serve_s)
    until([f"{name}.json" for name in names], _DONE_WITHIN_S)
    ran.memory_bytes = ran.memory_bytes or memory_bytes()
    (folder / "done").touch()
    if trains:
        until(["training.json"], _DONE_WITHIN_S)
        for each in processes:
            each.wait(_DONE_WITHIN_S)
        found = json.loads((folder / "training.json").read_text())
        ran.ends_s, ran.losses = found["ends_s"], found["losses"]
    return ran


def _read(folder: Path, name: str, record: Path) -> Served:
    """Result of a service, as it wrote it.

    Raises:
        RuntimeError: It has no record of requests.
    """
    found = json.loads((folder / f"{name}.json").read_text())
    if not (intervals := read(record)):
        raise RuntimeError(f"{name} has no record of requests")
    return Served(intervals, **found)
