"""A job that writes each iteration down and saves itself every second, and a check of what it wrote."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.runtime.running import job_file

_SCRIPT = """
import json, sys, time
from itertools import count
from pathlib import Path
import torch

checkpoint, written = Path("checkpoint.json"), Path("iterations.txt")
steps, sessions = int(sys.argv[1]), int(sys.argv[2])
first = json.loads(checkpoint.read_text()) if checkpoint.exists() else 0
earlier = written.read_text().count("begin") if written.exists() else 0
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
saved_s = time.monotonic()
with written.open("a") as out:
    print("begin", first, file=out, flush=True)
    for step in count(first):
        loss = model(torch.ones(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, file=out, flush=True)
        time.sleep(0.05)
        is_last = earlier + 1 >= sessions and step - first + 1 >= steps
        if is_last or time.monotonic() - saved_s >= 1.0:
            saved = checkpoint.with_suffix(".new")
            saved.write_text(json.dumps(step + 1))
            saved.replace(checkpoint)
            saved_s = time.monotonic()
        if is_last:
            break
"""
"""Script that SIGTERM ends as it is: what it did since its last checkpoint, it does again."""


def saving_job(folder: Path, steps: int, sessions: int) -> None:
    """Write a job file with one job, which is done in its session `sessions` after `steps` iterations there."""
    (folder / "saves.py").write_text(_SCRIPT)
    job_file(folder, {"name": "a", "script": "saves.py", "args": [str(steps), str(sessions)]})


@dataclass(frozen=True)
class Written:
    """Counts of what the job wrote.

    Attributes:
        sessions: Number of its sessions.
        iterations: Number of iterations.
        repeated: Number of times that an iteration was done again since it was after the last checkpoint.
        beyond: Number of times that one was recorded again without that reason.
        missing: Number of iterations that are missing.
    """

    sessions: int
    iterations: int
    repeated: int
    beyond: int
    missing: int


def what_it_wrote(folder: Path) -> Written:
    """Read what the job in a folder wrote."""
    sessions: list[list[int]] = []
    for line in (folder / "iterations.txt").read_text().splitlines():
        if line.startswith("begin"):
            sessions.append([int(line.split()[1])])
        else:
            sessions[-1].append(int(line))
    done, repeated, beyond = 0, 0, 0
    for first, *iterations in sessions:
        # Two processes that write at once, and one that goes back further than its checkpoint, break this order.
        beyond += sum(found != first + place for place, found in enumerate(iterations))
        repeated += max(0, min(done, first + len(iterations)) - first)
        done = max(done, first + len(iterations))
    counts = Counter(each for _, *iterations in sessions for each in iterations)
    beyond += sum(counts.values()) - len(counts) - repeated
    return Written(len(sessions), len(counts), repeated, beyond, done - len(counts))
