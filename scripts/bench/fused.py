"""Fused lanes against a process for each trial: hand-over, cost of a trial beside its work, and memory.

Trials of one script in one lane of a real warm server. A hand-over is timed inside the scripts, from the call that ends
an iteration of one to the return of that call in the next: exchange of state, choice and wake-up. Processes
and threads are measured alternately, in rounds.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ecoshare.lane import processes
from scripts.bench.benchmarking import Figure, Options, median, percentile, run_benchmark
from tests.lane.served_lane import ServedLane

HANDS_OVER = """
import json, sys, time
from pathlib import Path
import ecoshare
out, turns = Path(sys.argv[1]), int(sys.argv[2])
ecoshare.iteration()
while not out.with_name("go").exists():
    time.sleep(0.005)
    ecoshare.iteration()
times = []
for _ in range(turns):
    began_s = time.monotonic()
    ecoshare.iteration()
    times.append((began_s, time.monotonic()))
out.write_text(json.dumps(times))
"""

TRAINS = """
import sys, time
from pathlib import Path
import torch
import ecoshare
iterations, go, device, width = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], 2048
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, 64)).to(device)
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(4096 if go.name else 32, 64, device=device)
for _ in range(iterations):
    optimizer.zero_grad()
    (model(x) - x).square().mean().backward()
    optimizer.step()
while go.name and not go.exists():
    time.sleep(0.01)
    ecoshare.iteration()
"""

AT_ONCE = 8


def hand_over(folder: Path, jobs: int, turns: int, fused: bool) -> list[float]:
    """Microseconds of each hand-over."""
    lane = ServedLane(folder)
    try:
        lane.hand_over_always()
        script = folder / "hands_over.py"
        script.write_text(HANDS_OVER)
        for job in range(jobs):
            lane.start(f"j{job}", script, str(folder / f"{job}.json"), str(turns), fused=fused)
        _wait_until(lambda: sum(slot.iterations > 5 for slot in lane.table.slots) == jobs)
        (folder / "go").touch()
        for job in range(jobs):
            assert lane.ended(f"j{job}").outcome == "completed", lane.printed(f"j{job}", "stderr")
    finally:
        lane.close()
    calls = []
    for job in range(jobs):
        for began_s, ended_s in json.loads((folder / f"{job}.json").read_text()):
            calls += [(began_s, False, job), (ended_s, True, job)]
    calls.sort()
    return [
        1e6 * (later_s - earlier_s)
        for (earlier_s, was_end, one), (later_s, is_end, other) in itertools.pairwise(calls)
        if is_end and not was_end and one != other
    ]


def trial_s(folder: Path, trials: int, fused: bool) -> float:
    """Seconds for each of many trials of one iteration, two in the lane at a time."""
    lane = ServedLane(folder)
    try:
        script = folder / "trains.py"
        script.write_text(TRAINS)
        for number in range(4):  # the process and what it loads late
            lane.start(f"w{number}", script, "1", "", "cpu", fused=fused)
            lane.ended(f"w{number}")
        began_s = time.monotonic()
        lane.start("0", script, "1", "", "cpu", fused=fused)
        for number in range(1, trials):
            lane.start(str(number), script, "1", "", "cpu", fused=fused)
            lane.ended(str(number - 1))
        lane.ended(str(trials - 1))
        return (time.monotonic() - began_s) / trials
    finally:
        lane.close()


def memory_bytes(folder: Path, jobs: int, fused: bool, device: str) -> int:
    """Device memory of `jobs` trials that have trained and wait for their turns."""
    before = _used_bytes(device, 0)
    lane = ServedLane(folder)
    try:
        script, go = folder / "trains.py", folder / "go"
        script.write_text(TRAINS)
        for number in range(jobs):
            lane.start(f"j{number}", script, "10", str(go), device, fused=fused, device=device)
        _wait_until(lambda: sum(slot.iterations > 30 for slot in lane.table.slots) == jobs)
        used = _used_bytes(device, lane.server.pid) - before
        go.touch()
        for number in range(jobs):
            assert lane.ended(f"j{number}").outcome == "completed", lane.printed(f"j{number}", "stderr")
        return used
    finally:
        lane.close()


def _used_bytes(device: str, server: int) -> int:
    if device == "cpu":
        return processes.proportional_bytes(processes.family(server)) if server else 0
    import pynvml

    pynvml.nvmlInit()
    return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used)


def _wait_until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 120.0
    while not condition():
        if time.monotonic() > end_s:
            raise TimeoutError("the trials do not get so far")
        time.sleep(0.02)


def memory(device: str) -> list[Figure]:
    """Memory of eight trials in one process, and in eight."""
    used = {}
    for fused in (True, False):
        with tempfile.TemporaryDirectory() as name:
            used[fused] = memory_bytes(Path(name), AT_ONCE, fused, device) / 2**20
    return [
        Figure(f"memory of {AT_ONCE} trials in one process, {device}", used[True], "MiB"),
        Figure(f"memory of {AT_ONCE} trials in {AT_ONCE} processes, {device}", used[False], "MiB"),
        Figure(f"processes / fused, {device}", used[False] / used[True], "x"),
    ]


def measure(options: Options) -> list[Figure]:
    """All figures."""
    figures = []
    for jobs in (2, AT_ONCE):
        for fused in (True, False):
            each = []
            for _ in range(1 if options.quick else 3):
                with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
                    each.append(hand_over(Path(name), jobs, 500 if options.quick else 2000, fused))
            name, wanted = ("threads", "<= 60") if fused else ("processes", "")
            figures.append(
                Figure(f"hand-over p50, {jobs} {name}", median([median(times) for times in each]), "us", wanted)
            )
            figures.append(Figure(f"hand-over p95, {jobs} {name}", median([percentile(t, 0.95) for t in each]), "us"))
    ratios: list[float] = []
    costs: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(1 if options.quick else 3):
        for fused in (True, False):
            with tempfile.TemporaryDirectory() as name:
                costs[fused].append(trial_s(Path(name), 20 if options.quick else 60, fused))
        ratios.append(costs[False][-1] / costs[True][-1])
    figures.append(Figure("a trial of one iteration, thread", 1e3 * median(costs[True]), "ms"))
    figures.append(Figure("a trial of one iteration, process", 1e3 * median(costs[False]), "ms"))
    figures.append(Figure("process / thread", median(ratios), "x"))
    return figures + memory("cpu")


def main() -> None:
    """Run it from the command line."""
    run_benchmark("fused", __doc__, measure, Options)


if __name__ == "__main__":
    main()
