"""The script keeps tensors of its own, one of them on an array of numpy's."""

import numpy
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(512, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
history = [torch.randn(1024, 1024) for _ in range(3)]
array = torch.from_numpy(numpy.zeros(12_000_000, dtype=numpy.float32))
inputs = torch.randn(512, 512)
for step in range(14):
    loss = model(inputs).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    history[step % 3] = torch.randn(1024, 1024)
    print(loss.item().hex(), history[0].sum().item().hex())
