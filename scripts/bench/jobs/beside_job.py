"""Training of bench_services.py: it trains until the file `done` is there, and writes its losses and their times.

An iteration adds up the gradients of several passes, if it is to be long.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--passes", type=int, default=1, help="passes of an iteration")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processor", type=int, help="the only one that trains")
    args = parser.parse_args()
    if args.processor is not None:
        os.sched_setaffinity(0, {args.processor})
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(*(part for _ in range(args.layers) for part in (nn.Linear(256, 256), nn.ReLU())))
    model = model.to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(64, 256).to(args.device)
    ends_s, losses = [], []
    while not (args.folder / "done").exists():
        optimizer.zero_grad()
        for _ in range(args.passes):
            loss = (model(x) - x).square().mean()
            loss.backward()
            losses.append(loss.item().hex())
            ends_s.append(time.monotonic())
            if len(ends_s) == 20:  # it is warm
                (args.folder / "training.ready").touch()
        optimizer.step()
    (args.folder / "training.json").write_text(json.dumps({"ends_s": ends_s, "losses": losses}))


if __name__ == "__main__":
    main()
