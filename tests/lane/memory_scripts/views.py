"""Many tensors over one storage: rows of a pool, and weights that two layers share."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512))
model[2].weight = model[0].weight
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
pool = torch.randn(4096, 512)
rows = [pool[i * 512 : (i + 1) * 512] for i in range(8)] + [pool.T, pool.view(-1)[1:]]
for step in range(8):
    loss = model(rows[step % 8]).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item().hex())
