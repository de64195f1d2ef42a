"""Trains for a time, and writes when each iteration ended: `timed_job.py SECONDS FILE`, for `bench/share_runs.py`."""

import sys
import time
from pathlib import Path

import torch

torch.set_num_threads(1)
model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
end_s = time.monotonic() + float(sys.argv[1])
with Path(sys.argv[2]).open("w") as times:
    while time.monotonic() < end_s:
        loss = model(torch.randn(64, 512)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(time.monotonic(), file=times, flush=True)
