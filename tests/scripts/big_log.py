"""The script writes 100 MB to stdout between its steps.

A log that goes through a pipe, or through the controller, would stall.
"""

import argparse
import sys

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--megabytes", type=int, default=100)
args = parser.parse_args()

torch.manual_seed(18)
x = torch.randn(12, 4)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
line = "0123456789abcdef" * 6 + "...\n"  # 100 bytes

for step in range(10):
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}")
    for _ in range(args.megabytes):
        sys.stdout.write(line * 1000)  # a tenth of a megabyte
