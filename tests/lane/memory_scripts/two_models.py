"""Two models and two optimizers, trained in turn."""

import torch
from torch import nn

torch.manual_seed(0)
first, second = nn.Linear(512, 1024), nn.Linear(1024, 512)
optimizers = [torch.optim.SGD(first.parameters(), lr=0.1), torch.optim.Adam(second.parameters())]
inputs = torch.randn(512, 512)
for _ in range(8):
    loss = second(first(inputs)).pow(2).mean()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    print(loss.item().hex())
