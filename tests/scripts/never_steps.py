"""Forwards and backwards without any optimizer.

No iteration ever ends, and the job must still complete.
"""

import time

import torch
from torch import nn

torch.manual_seed(19)
model = nn.Sequential(nn.Linear(6, 20), nn.Softplus(), nn.Linear(20, 1))
for probe in range(15):
    x = torch.randn(8, 6, requires_grad=True)
    loss = model(x).sum()
    model.zero_grad()
    loss.backward()
    norm = sum(p.grad.square().sum() for p in model.parameters()).sqrt()
    time.sleep(0.03)  # long enough to be seen at work
    print(probe, f"{loss:.9g}", f"{norm:.9g}", f"{x.grad.norm():.9g}")
