"""The script keeps and touches 50 MiB more at each step, without end unless --limit-mib is given.

The runner must see its memory in time, and stop this job alone.
"""

import argparse
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--limit-mib", type=int, default=None)
args = parser.parse_args()

torch.manual_seed(34)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []
step = 0
while args.limit_mib is None or 50 * len(kept) < args.limit_mib:
    kept.append(torch.ones(50 * 2**20, dtype=torch.uint8))
    loss = model(torch.randn(16, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}", 50 * len(kept), "MiB", flush=True)
    time.sleep(0.05)
    step += 1
