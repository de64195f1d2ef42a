"""Job of bench_turns.py: it trains layers for ever, or, with `--serve`, for each line `layers iterations`."""

import argparse
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=1)
parser.add_argument("--serve", action="store_true")
args = parser.parse_args()


def trainer(layers: int) -> Callable[[], None]:
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


if args.serve:
    for line in sys.stdin:
        layers, iterations = map(int, line.split())
        step = trainer(layers)
        for _ in range(max(3, iterations // 10)):
            step()
        began_s = time.monotonic()
        for _ in range(iterations):
            step()
        print(time.monotonic() - began_s, flush=True)
else:
    step = trainer(args.layers)
    while True:
        step()
