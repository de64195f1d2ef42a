"""End of a run of many jobs: time of its report, of its trace for Perfetto and of `ecoshare explain`.

The runs are simulated, under a policy that has no groups and under the default one, and written as run folders: short
jobs of four classes that all come at once, a sample of the meter each second and rarer later, the mark of every
iteration. So most jobs wait most of the time, which is the hard case. Times are processor time of the calls of the
commands, after the same calls for a small run.
"""

from __future__ import annotations

import io
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from itertools import combinations_with_replacement
from pathlib import Path
from random import Random
from typing import Any

from ecoshare.core.commands import Command, StartJob
from ecoshare.core.events import Config, Done, Event, IterationsDone, JobExited
from ecoshare.core.scheduler import Scheduler
from ecoshare.lane.trace import Kind, Tracer, trace_path
from ecoshare.record.event_log import EventLog
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.samples import AttemptProgress, Line, Sample, Session, attempt_key, encode
from ecoshare.reporting.explanation_text import show
from ecoshare.reporting.exports import export
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.simulator import Simulator
from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob, in_order
from ecoshare.simulation.world import Pairs, World
from ecoshare.values.attempt import Usage
from ecoshare.values.class_profile import MemoryDemand
from scripts.bench.benchmarking import Figure, Options, run_benchmark, say

SIZES, QUICK_SIZES = (1_000, 3_000, 10_000), (100, 300)
CONFIGS = (Config("fair", 1, 4, profile=True), Config("energy", 3, 4, profile=True))
WANTED = "<= 20"
"""Bounds (s) for the largest run."""

FIRST = 20
"""Number of jobs of the first run, which loads all modules."""

CLASSES = 4
METER_W = 100.0
MEMORY = Path("/dev/shm")
"""Folder of the runs: a log is synced after each decision, which takes a disk too long."""

Log = Sequence[tuple[Event, list[Command]]]


def jobs(count: int) -> list[TraceJob]:
    """Short jobs that all come at once."""
    random = Random(count)
    made = []
    for place in range(count):
        number = random.randrange(CLASSES)
        iteration_s = 0.05 * (1 + number)
        phases = (Phase(round(random.uniform(1.0, 3.0) / iteration_s), iteration_s),)
        memory = MemoryDemand((1 + number) << 30, 256 << 20)
        made.append(TraceJob(f"j{place}", f"class {number}", 0.0, phases, memory=memory))
    return made


def world() -> World:
    """World with classes that keep a device more or less busy; two busy classes delay each other."""
    busy = {f"class {number}": 0.2 + 0.25 * number for number in range(CLASSES)}
    known = {}
    for one, other in combinations_with_replacement(busy, 2):
        speed = min(1.0, 1.0 / (busy[one] + busy[other]))
        known[(one, 1), (other, 1)] = known[(other, 1), (one, 1)] = speed
    gpu = GPUS["v100"]
    return World(gpu, active_w={name: gpu.active_w * part for name, part in busy.items()}, pairs=Pairs("made", known))


def write(path: Path, count: int, config: Config) -> int:
    """Write the folder of a run with a number of jobs; returns the number of its events."""
    trace = Trace("made", "made", in_order(jobs(count)), "")
    log: list[tuple[Event, list[Command]]] = []
    cluster = Cluster(1, 1, GPUS["v100"])
    Simulator(trace, cluster, config, world(), Costs()).run(lambda *each: log.append(each))
    path.mkdir(parents=True)
    device = cluster.devices()[0].name
    (path / "plan.json").write_text(json.dumps(plan(trace, device, config)))
    events, core = EventLog(path / "events.jsonl"), Scheduler()
    for event, commands in log:
        core.handle(event)
        events.write(event, commands, core)
    events.close()
    (path / "samples.jsonl").write_text("".join(map(encode, samples(log, device))))
    write_traces(RunFolder(path), log)
    return len(log)


def plan(trace: Trace, device: str, config: Config) -> dict[str, Any]:
    """Content of plan.json, which a run writes before it begins."""
    gpu = GPUS["v100"]
    row = {"name": device, "kind": "cuda", "model": gpu.name, "uuid": None, "cores": 8}
    return {
        "job_file": "jobs.yaml",
        "digest": "",
        "objective": "energy",
        "policy": config.policy,
        "devices": [{**row, "memory_bytes": gpu.memory_bytes}],
        "lanes": config.lanes_per_device,
        "places_per_lane": config.places_per_lane,
        "profiles": None,
        "notes": [],
        "jobs": [
            {"name": each.name, "class": each.job_class, "arrival_s": each.arrival_s, "slowdown_limit": None}
            for each in trace.jobs
        ],
    }


def samples(log: Log, device: str) -> list[Line]:
    """Samples of the run: the meter's values, and the progress of each job."""
    lines: list[Line] = [Session(0.0, device, "a meter", "measured", "gpu", "made for this benchmark", 0.1, 40.0)]
    keys: dict[str, str] = {}
    going: dict[str, AttemptProgress] = {}
    ended: set[str] = set()
    next_s = 0.0
    for event, commands in log:
        if event.at_s >= next_s:
            lines.append(Sample(event.at_s, METER_W * event.at_s, jobs=dict(going)))
            next_s = event.at_s + max(1.0, event.at_s / 3600)
            for key in ended:
                going.pop(key, None)
            ended.clear()
        for command in commands:
            if isinstance(command, StartJob):
                key = keys[command.job] = attempt_key(command.job, command.attempt)
                going[key] = AttemptProgress(command.lanes[0], 0.0, 0, 0, 0.0)
        if isinstance(event, IterationsDone | JobExited):
            key = keys[event.job]
            going[key] = progress(going[key], event.usage)
            if isinstance(event, JobExited):
                ended.add(key)
    return lines


def progress(before: AttemptProgress, usage: Usage) -> AttemptProgress:
    """Progress of an attempt at a time."""
    return AttemptProgress(before.lane, usage.held_s, usage.iterations, usage.eval_iterations, usage.cpu_s)


def write_traces(folder: RunFolder, log: Log) -> None:
    """Write a trace for each attempt: one turn, with its iterations evenly in it."""
    starting: dict[int, StartJob] = {}
    began_s: dict[str, float] = {}
    for event, commands in log:
        starting.update({each.id: each for each in commands if isinstance(each, StartJob)})
        if isinstance(event, Done) and event.command in starting:
            began_s[starting.pop(event.command).job] = event.at_s
        elif isinstance(event, JobExited):
            from_s, count = began_s[event.job], event.usage.iterations
            folder.job(event.job).mkdir(parents=True, exist_ok=True)
            tracer = Tracer(trace_path(folder.job(event.job), event.attempt), 0.0)
            tracer.turn(Kind.TURN_BEGINS, from_s)
            for number in range(count):
                tracer.iteration(Kind.TRAIN, from_s + (event.at_s - from_s) * (number + 1) / count)
            tracer.turn(Kind.TURN_ENDS, event.at_s)
            tracer.close()


def explained(folder: RunFolder) -> int:
    """Explain a run in words; returns the number of characters."""
    words = io.StringIO()
    with redirect_stdout(words):
        show(folder.path, None, as_json=False)
    return len(words.getvalue())


ENDS: dict[str, Callable[[RunFolder], int]] = {
    "report": lambda folder: len(export(folder, "html")),
    "trace": lambda folder: len(export(folder, "perfetto")),
    "explain": explained,
}


def measure(options: Options) -> list[Figure]:
    """All figures."""
    figures = []
    sizes = QUICK_SIZES if options.quick else SIZES
    for config in CONFIGS:
        for count in (FIRST, *sizes):
            with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
                folder = RunFolder(Path(name) / "run")
                events = write(folder.path, count, config)
                for end, call in ENDS.items():
                    began_s = time.process_time()
                    size = call(folder)
                    spent_s = time.process_time() - began_s
                    if count == FIRST:
                        continue
                    say(f"{end}, {config.policy}, {count} jobs, {events} events: {spent_s:.1f} s, {size / 1e6:.1f} MB")
                    note = f"{1_000 * spent_s / count:.2f} s per 1,000 jobs; {events} events"
                    wanted = WANTED if count == SIZES[-1] else ""
                    figures.append(Figure(f"{end}, {config.policy}, {count} jobs", spent_s, "s", wanted, note))
    return figures


def main() -> None:
    """Run it from the command line."""
    run_benchmark("ends", __doc__, measure, Options)


if __name__ == "__main__":
    main()
