"""Forwards and backwards that reach no parameter: only the inputs of a frozen model have gradients.

No iteration ever ends, and the job must still complete.
"""

import time

import torch
from torch import nn

torch.manual_seed(19)
model = nn.Sequential(nn.Linear(6, 20), nn.Softplus(), nn.Linear(20, 1)).requires_grad_(False)
x = torch.randn(8, 6)
for probe in range(15):
    x.requires_grad_()
    loss = model(x).sum()
    loss.backward()
    gradient = x.grad
    x = x.detach() + 0.1 * gradient.sign()
    time.sleep(0.03)  # long enough to be seen at work
    print(probe, f"{loss:.9g}", f"{gradient.norm():.9g}")
