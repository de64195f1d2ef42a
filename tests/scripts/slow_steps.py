"""A plain loop of --steps steps that need --ms milliseconds of a processor each, for tests of supervision.

The work is processor time, so it is as long on a fast machine as on a slow one, and a neighbour on the same processor
makes it slower. All of it computes the same numbers, so no result depends on how often. At its end the script adds a
line to the file that --done names; a killed job does not.
"""

import argparse
import time
from pathlib import Path

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=50)
parser.add_argument("--ms", type=int, default=20)
parser.add_argument("--seed", type=int, default=52)
parser.add_argument("--done", type=Path, default=None)
args = parser.parse_args()

torch.manual_seed(args.seed)
x = torch.randn(128, 128)  # too few numbers for torch to use a second thread
model = nn.Linear(128, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for step in range(args.steps):
    until_s = time.thread_time() + args.ms / 1e3
    while True:
        features = (x + x).sigmoid()
        if time.thread_time() >= until_s:
            break
    loss = nn.functional.mse_loss(model(features[:8]), x[:8, :4])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}", flush=True)
if args.done is not None:
    with args.done.open("a") as done:
        done.write(f"done {args.steps} {loss:.9g}\n")
