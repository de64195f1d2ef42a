"""The script hangs inside an iteration after five steps, with the turn: only a hang limit helps its neighbours."""

import time

import torch

torch.manual_seed(35)
x = torch.randn(8, 4)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    loss = model(x).square().mean()
    if step == 5:
        time.sleep(1000)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}", flush=True)
