"""The script sets OMP_NUM_THREADS before it imports torch.

The variable comes too late if torch is loaded already.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import torch

print("threads", torch.get_num_threads())
torch.manual_seed(45)
x = torch.randn(256, 64)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    loss = (model(x) - x.flip(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}")
