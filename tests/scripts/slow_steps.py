"""A plain loop of --steps steps of about --ms milliseconds of tensor work each, for tests of supervision.

The work is a count of operations, never a time, so a neighbour makes it slower but changes no result. At its end
the script adds a line to the file that --done names; a killed job does not.
"""

import argparse
from pathlib import Path

import torch
from torch import nn

SIGMOIDS_A_MS = 80  # 128 x 128 numbers, on one core: too few for torch to use a second thread

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=50)
parser.add_argument("--ms", type=int, default=20)
parser.add_argument("--seed", type=int, default=52)
parser.add_argument("--done", type=Path, default=None)
args = parser.parse_args()

torch.manual_seed(args.seed)
x = torch.randn(128, 128)
model = nn.Linear(128, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for step in range(args.steps):
    features = x
    for _ in range(SIGMOIDS_A_MS * args.ms):
        features = (features + x).sigmoid()
    loss = nn.functional.mse_loss(model(features[:8]), x[:8, :4])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}", flush=True)
if args.done is not None:
    with args.done.open("a") as done:
        done.write(f"done {args.steps} {loss:.9g}\n")
