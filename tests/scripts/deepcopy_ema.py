"""The script keeps a deep copy of the model as a moving average, and evaluates it after every fifth step.

Everything attached to the model is copied with it; the evaluation falls between a step and its boundary, the
next forward with gradients.
"""

import copy

import torch
from torch import nn

torch.manual_seed(42)
x = torch.randn(48, 6)
y = x.sin().sum(dim=1, keepdim=True)
model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
average = copy.deepcopy(model).requires_grad_(False).eval()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

for step in range(20):
    loss = nn.functional.mse_loss(model(x[:32]), y[:32])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for kept, new in zip(average.parameters(), model.parameters(), strict=True):
            kept.lerp_(new, 0.2)
    print(step, f"{loss:.9g}")
    if step % 5 == 4:
        with torch.no_grad():
            print("average", f"{nn.functional.mse_loss(average(x[32:]), y[32:]):.9g}")
