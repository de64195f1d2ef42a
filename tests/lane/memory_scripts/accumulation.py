"""Four backward passes for one step: the gradients stay through most of the iteration."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(4, 256, 512)
for _ in range(8):
    for micro in inputs:
        loss = model(micro).pow(2).mean()
        loss.backward()
        print(loss.item().hex())
    optimizer.step()
    optimizer.zero_grad()
