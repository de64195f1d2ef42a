"""The script needs an option that it does not get.

The parser prints the usage on stderr and exits 2, which must be the job's exit code.
"""

import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
args = parser.parse_args()

torch.manual_seed(6)
weight = torch.randn(4, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(len(args.data)):
    loss = weight.square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}")
