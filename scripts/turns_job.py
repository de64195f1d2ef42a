"""The job of bench_turns.py: trains a stack of layers, and notes when its measured iterations began and ended.

It iterates until all jobs of its round are there (`--folder` holds a file for each), then does `--iterations` more and
writes two monotonic times. With `--serve` it does so again and again for lines `layers iterations` on stdin.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=1)
parser.add_argument("--iterations", type=int, default=100)
parser.add_argument("--name", default="0")
parser.add_argument("--jobs", type=int, default=1)
parser.add_argument("--folder", type=Path, default=None)
parser.add_argument("--serve", action="store_true")
args = parser.parse_args()


def trainer(layers: int):
    torch.manual_seed(0)
    blocks = [part for _ in range(layers) for part in (nn.Linear(256, 256), nn.ReLU())]
    model = nn.Sequential(*blocks)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(64, 256)

    def step() -> None:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def measure(step, iterations: int) -> tuple[float, float]:
    began = time.monotonic()
    for _ in range(iterations):
        step()
    return began, time.monotonic()


if args.serve:
    for line in sys.stdin:
        layers, iterations = map(int, line.split())
        step = trainer(layers)
        measure(step, max(3, iterations // 10))
        began, ended = measure(step, iterations)
        print(ended - began, flush=True)
else:
    step = trainer(args.layers)
    measure(step, 3)
    (args.folder / f"ready-{args.name}").touch()
    while sum(1 for _ in args.folder.glob("ready-*")) < args.jobs:
        step()
    began, ended = measure(step, args.iterations)
    (args.folder / f"times-{args.name}").write_text(f"{began} {ended}")
