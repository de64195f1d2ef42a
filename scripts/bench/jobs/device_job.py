"""Training job of one thread, for a benchmark of several devices: it prints its last loss."""

from __future__ import annotations

import sys

import torch

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Tanh(), torch.nn.Linear(512, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(int(sys.argv[2])):
    loss = model(torch.randn(128, 256)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item().hex())
