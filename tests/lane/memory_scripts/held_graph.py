"""A second loss is kept with its graph, and no backward pass frees it."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(512, 512)
head = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(512, 512)
for _ in range(8):
    loss = model(inputs).pow(2).mean()
    held = head(inputs).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item().hex(), held.item().hex())
