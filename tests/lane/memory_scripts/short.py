"""The script ends before an observation does."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    loss = model(torch.randn(64, 256)).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
