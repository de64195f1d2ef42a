"""Gradient accumulation over four micro-batches before each step.

Neither a loader's next nor a forward alone ends an iteration. An epoch has 22 micro-batches, so a group of
four runs over the end of an epoch.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(13)
x = torch.randn(66, 5)
loader = DataLoader(TensorDataset(x, x.abs().sum(dim=1, keepdim=True)), batch_size=3, shuffle=True)
model = nn.Sequential(nn.Linear(5, 16), nn.GELU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

micro_batches, total = 0, 0.0
for epoch in range(2):
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets) / 4
        loss.backward()
        total += loss.item()
        micro_batches += 1
        if micro_batches % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
            print(epoch, micro_batches, f"{total:.9g}")
            total = 0.0
