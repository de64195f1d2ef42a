"""A training script for fake GPUs, as jobs of a job file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
CONTEXT_BYTES = 300 * MIB

SCRIPT = f"""
import argparse
import sys
from pathlib import Path

sys.path.insert(0, {str(ROOT)!r})

import torch
from tests.driver.cuda_standin import StandIn

parser = argparse.ArgumentParser()
for name in ("steps", "ms", "kept", "work"):
    parser.add_argument("--" + name, type=int)
for name in ("compute", "memory"):
    parser.add_argument("--" + name, type=float)
parser.add_argument("--until", type=Path)
parser.add_argument("--responds", action="store_true")
args = parser.parse_args()

gpu = StandIn(args.compute, args.memory, {CONTEXT_BYTES}, args.responds)
gpu.allocate(args.kept)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(args.steps):
    if args.until is not None and args.until.exists():
        break
    optimizer.zero_grad()
    loss = model(torch.ones(1, 4)).sum()
    gpu.allocate(args.work)
    gpu.work(args.ms / 1000)
    gpu.free(args.work)
    loss.backward()
    optimizer.step()
"""


@dataclass(frozen=True)
class Training:
    """Load of a training on its GPU.

    Attributes:
        ms: Time (ms) of an iteration on the GPU.
        compute: Part of the GPU's arithmetic in use, as the mean over an iteration.
        memory: Part of the memory bandwidth in use, as the mean over an iteration.
        kept_bytes: Memory that is allocated all the time; `work_bytes` only inside an iteration.
    """

    name: str
    ms: int
    compute: float
    memory: float
    kept_bytes: int
    work_bytes: int

    def args(self, steps: int) -> list[str]:
        """Arguments of `SCRIPT`."""
        loads = ["--compute", str(self.compute), "--memory", str(self.memory)]
        sizes = ["--kept", str(self.kept_bytes), "--work", str(self.work_bytes)]
        return ["--steps", str(steps), "--ms", str(self.ms), *loads, *sizes]

    def job(self, steps: int, *args: str) -> dict[str, Any]:
        """Job of `trains.py` with this number of steps, which does not change its class."""
        return {"name": self.name, "script": "trains.py", "class": self.name, "args": [*self.args(steps), *args]}


COMPUTES = Training("computes", 25, 1.0, 0.05, 1024 * MIB, 512 * MIB)
STREAMS = Training("streams", 35, 0.85, 0.9, 2048 * MIB, 256 * MIB)
WAITS = Training("waits", 25, 0.2, 0.1, 512 * MIB, 128 * MIB)
"""Trainings that are bound by arithmetic, by memory bandwidth, and by the host."""
