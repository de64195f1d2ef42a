"""The script imports `model` and `core` from its own folder: job b has another `model`, ecoshare another `core`."""

import torch
from core import learning_rate
from model import NAME, Net

torch.manual_seed(4)
x = torch.randn(32, 6)
y = x.prod(dim=1, keepdim=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate(0))

print(NAME)
for step in range(12):
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step)
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}")
