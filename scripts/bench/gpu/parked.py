"""Parked jobs on a real GPU: the speed of checkpoint and restore, the same bits after them, and a run that parks.

A process fills a part of the GPU with numbers, and is parked and resumed by ecoshare's own transfer. It then compares
all numbers. In the run, a job of high priority comes while another one has the only place. A thread of each job maps
memory all the time.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from ecoshare.devices import registry
from ecoshare.devices.memory_transfer import MemoryTransfer, TransferFault
from ecoshare.errors import EcoshareError
from scripts.bench.benchmarking import ROOT, Figure
from scripts.bench.gpu.shared_run import share
from scripts.bench.job_file import JobEntry

GIB = 1 << 30

_FILLS = """
import sys
import torch
torch.manual_seed(1)
numbers = torch.randint(0, 1 << 30, (int(sys.argv[1]) // 8,), device="cuda")
before = numbers.sum().item()
print("ready", flush=True)
input()
print("equal" if numbers.sum().item() == before else "different", flush=True)
"""

_TRAINS = """
import sys
import torch
torch.manual_seed(1)
torch.use_deterministic_algorithms(True)
import mmap
import threading
import time
def maps():  # the driver maps its memory over what comes to its addresses while the job is parked
    kept = []
    while True:
        kept = [*kept[-200:], mmap.mmap(-1, 2 << 20)]
        kept[-1][:4] = b"mine"
        if any(each[:4] != b"mine" for each in kept):
            print("memory of a thread is spoiled", flush=True)
        time.sleep(0.002)
threading.Thread(target=maps, daemon=True).start()
kept = torch.ones(int(sys.argv[2]), dtype=torch.uint8, device="cuda")
model = torch.nn.Linear(512, 512, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(int(sys.argv[1])):
    loss = model(torch.randn(256, 512, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item(), flush=True)
"""

PARTS = (0.05, 0.2, 0.5)
"""Parts of the GPU's memory that a process fills."""


def figures(folder: Path) -> list[Figure]:
    """All figures of this part."""
    folder.mkdir()
    device = registry.find("cuda:0")
    try:
        transfer = registry.vendor(device.vendor).memory_transfer(device, dict(os.environ))
    except EcoshareError as error:
        return [Figure("parked jobs", None, "", note=str(error))]
    found = [each for part in PARTS for each in transfers(transfer, int(part * device.memory_bytes))]
    return [*found, *a_run(folder), language_model(folder)]


def transfers(transfer: MemoryTransfer, size_bytes: int) -> list[Figure]:
    """Speed of one checkpoint and one restore of a process with so much memory, and whether it is equal afterwards."""
    line = [sys.executable, "-c", _FILLS, str(size_bytes)]
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    name = f"{size_bytes / GIB:.1f} GiB"
    try:
        process.stdout.readline()
        began_s = time.monotonic()
        asyncio.run(transfer.park(process.pid))
        parked_s = time.monotonic()
        asyncio.run(transfer.resume(process.pid))
        resumed_s = time.monotonic()
        told, _ = process.communicate("\n", timeout=60)
    except TransferFault as fault:
        return [Figure(f"checkpoint of {name}", None, "", note=str(fault))]
    finally:
        process.kill()
        process.wait()
    return [
        Figure(f"checkpoint of {name}", size_bytes / GIB / (parked_s - began_s), "GiB/s", note="helper included"),
        Figure(f"restore of {name}", size_bytes / GIB / (resumed_s - parked_s), "GiB/s", note="helper included"),
        Figure(f"numbers equal after it, {name}", float("equal" in told.split()), "", ">= 1", told.strip()),
    ]


def a_run(folder: Path) -> list[Figure]:
    """A run with one place, in which a job of high priority comes later."""
    script = folder / "trains.py"
    script.write_text(_TRAINS)
    long = ["20000", str(2 * GIB)]
    alone = subprocess.run([sys.executable, str(script), *long], capture_output=True, check=False)
    jobs: list[JobEntry] = [
        {"name": "long", "script": str(script), "args": long},
        {"name": "urgent", "script": str(script), "args": ["500", str(GIB)], "priority": 99, "arrival": "6 s"},
    ]
    options = ("--policy", "priority", "--jobs-per-lane", "1", "--host-memory", "8 GiB", "--no-profiles")
    run = share(folder / "run", jobs, *options)
    long_job = next(job for job in run.summary["jobs"] if job["name"] == "long")
    note = f"parked for {long_job['parked_s']:.2f} s, {long_job['attempts']} attempts"
    return [
        Figure("jobs that were parked in a run", long_job["parks"], "", ">= 1", note),
        Figure("the same output as alone", float(run.printed("long") == alone.stdout), "", ">= 1"),
    ]


def language_model(folder: Path) -> Figure:
    """Iterations of a script without an optimizer, as pytorch/examples' word_language_model is written."""
    script = folder / "language_model.py"
    text = (ROOT / "tests" / "scripts" / "language_model.py").read_text()
    script.write_text(f"import torch\ntorch.set_default_device('cuda')\n{text}")
    run = share(folder / "language", [{"name": "words", "script": str(script)}], "--no-profiles")
    (job,) = run.summary["jobs"]
    return Figure("iterations of a script without an optimizer", job["iterations"], "", ">= 1", job["state"])
