"""Training job of bench_cluster.py that prints its losses, and tells of each attempt that it must not have.

    lone_job.py TOLD STEPS SEED

It locks the file TOLD from its first line to its end, and adds `done` to it at its end. If another process of the job
has the lock, it adds `beside another`. Most of an iteration is sleep, so that many jobs run on few cores.
"""

import fcntl
import sys
import time
from pathlib import Path

import torch

told = Path(sys.argv[1]).open("a")  # noqa: SIM115 - it is locked until the process ends
try:
    fcntl.flock(told, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("beside another", file=told, flush=True)
torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[3]))
data = torch.randn(32, 64)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for step in range(int(sys.argv[2])):
    optimizer.zero_grad()
    loss = model((data + model(data)).sigmoid()).square().mean()
    loss.backward()
    optimizer.step()
    time.sleep(0.01)
    print(step, f"{loss:.9g}", flush=True)
print("done", file=told, flush=True)
