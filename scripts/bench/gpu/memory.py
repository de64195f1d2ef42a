"""Memory on a real GPU: contexts, the cost to empty a cache, and three jobs with caches that do not fit together.

The three jobs each keep a tenth of the GPU and need half of it inside an iteration. With emptied caches they take
turns. The same core without the command that empties caches shows what happens otherwise.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from ecoshare.core.commands import SetCaching
from ecoshare.record import event_log
from scripts.bench.benchmarking import ROOT, Figure
from scripts.bench.job_file import JobEntry, write_jobs

_CONTEXT = """
import torch
torch.ones(1, device="cuda") @ torch.ones(1, device="cuda")
print("ready", flush=True)
input()
"""

_CACHE = """
import json, sys, time
import torch
total = torch.cuda.get_device_properties(0).total_memory
sizes = [int(total * share) for share in (0.2, 0.1, 0.1, 0.05, 0.05)]
kept = torch.ones(1 << 20, device="cuda")
def fill():
    began = time.perf_counter()
    held = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes]
    torch.cuda.synchronize()
    del held
    return time.perf_counter() - began
fill()
found = {"warm": [], "empty": [], "fill": []}
for _ in range(15):
    found["warm"].append(fill())
    torch.cuda.synchronize()
    began = time.perf_counter()
    torch.cuda.empty_cache()
    found["empty"].append(time.perf_counter() - began)
    found["fill"].append(fill())
print(json.dumps(found))
"""

_TRAINS = """
import sys
import torch
total = torch.cuda.get_device_properties(0).total_memory
kept = torch.empty(int(0.1 * total) - (600 << 20), dtype=torch.uint8, device="cuda")
model = torch.nn.Linear(256, 256, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(int(sys.argv[1])):
    work = torch.empty(int(0.5 * total), dtype=torch.uint8, device="cuda")
    work.zero_()
    model(torch.ones(64, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    del work
"""

_WITHOUT = """
from ecoshare.core.placement.allocator_rules import AllocatorRules
AllocatorRules._keeps_caches = lambda self, device: True
from ecoshare.cli import main
main()
"""

STEPS = 400


def figures(folder: Path) -> list[Figure]:
    """All figures of this part."""
    found = contexts()
    for words, setting in (("", ""), (", expandable segments", "expandable_segments:True")):
        found += cache_costs(words, setting)
    return found + three_jobs(folder / "three")


def contexts() -> list[Figure]:
    """Device memory of a process that has done one small operation, seen from another process."""
    read = "import torch; print(torch.cuda.mem_get_info()[0])"

    def free_bytes() -> int:
        done = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, check=True)
        return int(done.stdout)

    before = free_bytes()
    first = subprocess.Popen([sys.executable, "-c", _CONTEXT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    first.stdout.readline()
    context_mib = (before - free_bytes()) / 2**20
    first.communicate("\n")
    return [Figure("context of a process", context_mib, "MiB", "<= 600", "with its first kernel and a cache of 2 MiB")]


def cache_costs(words: str, setting: str) -> list[Figure]:
    """Time to empty a cache of half of the GPU in five segments, and to fill it again."""
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": setting} if setting else dict(os.environ)
    done = subprocess.run([sys.executable, "-c", _CACHE], capture_output=True, text=True, check=True, env=environment)
    times_s = {name: statistics.median(each) for name, each in json.loads(done.stdout).items()}
    more_ms = 1000.0 * (times_s["fill"] - times_s["warm"])
    return [
        Figure(f"to empty a cache{words}", 1000.0 * times_s["empty"], "ms", note="half of the GPU in five segments"),
        Figure(f"to fill it again{words}", more_ms, "ms", note="beyond the time with a full cache"),
    ]


def three_jobs(folder: Path) -> list[Figure]:
    """Three jobs with caches that exceed the GPU together, with emptied caches and without."""
    folder.mkdir()
    script = folder / "trains.py"
    script.write_text(_TRAINS)
    profiles = str(folder / "profiles")
    line = [sys.executable, "-m", "ecoshare", "profile", str(script), "--device", "cuda:0", "--profiles", profiles]
    made = subprocess.run(
        [*line, "--runs", str(folder / "runs"), "--", str(STEPS)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    if made.returncode:
        return [Figure("three jobs", None, "", note=made.stderr[-300:])]
    jobs: list[JobEntry] = [
        {"name": name, "script": str(script), "args": [str(STEPS)]} for name in ("one", "two", "three")
    ]
    found = []
    for way, start in (("emptied", ["-m", "ecoshare"]), ("kept", ["-c", _WITHOUT])):
        runs = folder / way
        runs.mkdir()
        line = [sys.executable, *start, "run", str(write_jobs(runs, jobs)), "--device", "cuda:0", "--control", "off"]
        line += ["--policy", "fair", "--json", "--profiles", profiles, "--runs", str(runs)]
        done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, check=False)
        if not done.stdout:
            found.append(Figure(f"three jobs, caches {way}", None, "", note=done.stderr[-300:]))
            continue
        summary = json.loads(done.stdout)
        attempts = sum(job["attempts"] for job in summary["jobs"])
        told = sum(isinstance(each, SetCaching) for each in event_log.read(runs / "latest" / "events.jsonl"))
        wanted = "<= 3" if way == "emptied" else ""
        note = f"{summary['makespan_s']:.1f} s; {told} commands about caches; more than 3 lacked memory"
        found.append(Figure(f"three jobs, caches {way}: attempts", attempts, "", wanted, note))
    return found
