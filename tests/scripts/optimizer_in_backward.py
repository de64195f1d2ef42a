"""Each parameter has an optimizer that steps inside the backward pass: such a step is no boundary."""

import torch
from torch import nn

torch.manual_seed(25)
x = torch.randn(24, 10)
model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 1))
optimizers = {p: torch.optim.AdamW([p], lr=0.005) for p in model.parameters()}


def step_now(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(step_now)

for step in range(12):
    loss = (model(x).squeeze(1) - x.norm(dim=1)).square().mean()
    loss.backward()
    print(step, f"{loss:.9g}")
