"""Activations and casts of the weights have half the width."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(1024, 512)
for _ in range(8):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = model(inputs)
    loss = outputs.float().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item().hex())
