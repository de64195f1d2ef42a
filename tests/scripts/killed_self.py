"""The script dies of SIGKILL in the middle of an iteration, as under the kernel's OOM killer.

The turn it holds must not be lost.
"""

import os
import signal

import torch

torch.manual_seed(33)
x = torch.randn(8, 4)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    if step == 10:
        os.kill(os.getpid(), signal.SIGKILL)
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}", flush=True)
