"""The script dies of SIGSEGV after some steps: its neighbours go on, and its flushed output is kept."""

import os
import signal

import torch

torch.manual_seed(32)
x = torch.randn(8, 4)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}", flush=True)
    if step == 9:
        os.kill(os.getpid(), signal.SIGSEGV)
