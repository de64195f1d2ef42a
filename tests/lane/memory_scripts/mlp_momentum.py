"""Gradients are kept (set to zero), and the optimizer has one moment."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(8):
    inputs = torch.randn(512, 512)
    optimizer.zero_grad(set_to_none=False)
    loss = model(inputs).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
