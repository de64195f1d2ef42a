"""Gradients of four micro-batches through torch.func, summed by hand, then one step.

Forwards run inside a function transform, in which a tensor cannot simply be read.
"""

import torch
from torch import nn
from torch.func import functional_call, grad_and_value

torch.manual_seed(50)
x = torch.randn(4, 8, 5)
y = x.square().mean(dim=2, keepdim=True)
model = nn.Sequential(nn.Linear(5, 16), nn.SiLU(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)


def loss_of(parameters, inputs, targets):
    return nn.functional.mse_loss(functional_call(model, parameters, (inputs,)), targets)


for step in range(12):
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    total = 0.0
    optimizer.zero_grad()
    for inputs, targets in zip(x, y, strict=True):
        gradients, loss = grad_and_value(loss_of)(parameters, inputs, targets)
        total += loss.item() / 4
        for name, p in model.named_parameters():
            p.grad = gradients[name] / 4 if p.grad is None else p.grad + gradients[name] / 4
    optimizer.step()
    print(step, f"{total:.9g}")
