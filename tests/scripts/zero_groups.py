"""One optimizer that steps for each group of its parameters, as the optimizers of DeepSpeed's ZeRO do.

They put the one group into their optimizer, step, and go on with the next one.
"""

import torch
from torch import nn

torch.manual_seed(41)
x, y = torch.randn(32, 8), torch.randn(32, 2)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.AdamW(
    [{"params": layer.parameters()} for layer in model if isinstance(layer, nn.Linear)], lr=0.01
)
groups = optimizer.param_groups

for step in range(9):
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    for group in groups:
        optimizer.param_groups = [group]
        optimizer.step()
    optimizer.param_groups = groups
    optimizer.zero_grad()
    print(step, f"{loss:.9g}")
