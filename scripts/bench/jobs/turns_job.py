"""Job of bench_turns.py: it trains layers for ever, or, with `--serve`, for each line `layers iterations`.

An iteration has several passes, if it is to be long. With `--unseen`, no module and no optimizer show any.
"""

import argparse
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=1)
parser.add_argument("--passes", type=int, default=1)
parser.add_argument("--unseen", action="store_true")
parser.add_argument("--serve", action="store_true")
args = parser.parse_args()


def trainer(layers: int, passes: int = 1) -> Callable[[], None]:
    torch.manual_seed(0)
    blocks = [part for _ in range(layers) for part in (nn.Linear(256, 256), nn.ReLU())]
    model = nn.Sequential(*blocks)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(64, 256)

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(passes):
            model(x).square().mean().backward()
        optimizer.step()

    return step


def by_hand() -> None:
    weights, x = torch.eye(256), torch.randn(64, 256)
    while True:
        weights = weights - 1e-6 * (x.T @ (x @ weights))


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
elif args.unseen:
    by_hand()
else:
    step = trainer(args.layers, args.passes)
    while True:
        step()
