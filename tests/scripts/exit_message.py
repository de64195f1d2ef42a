"""The script ends with sys.exit("text"): Python prints the text on stderr and exits 1."""

import sys

import torch


def train():
    torch.manual_seed(8)
    x = torch.randn(16, 4)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(11):
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, f"{loss:.9g}")
    return loss.item()


if train() > 1e-6:
    sys.exit("loss is still above 1e-6")
