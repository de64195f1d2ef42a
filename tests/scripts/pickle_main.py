"""The script saves and loads a whole model with a class in __main__.

Pickle must find that class under this name again.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn


@dataclass
class Progress:
    step: int
    loss: float


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x).tanh()


torch.manual_seed(43)
x = torch.randn(16, 4)
model = Net()
for part in range(2):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for step in range(6):
        loss = (model(x) - x.roll(1, dims=1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(part, step, f"{loss:.9g}")
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = Path(folder) / "state.pt"
        torch.save({"model": model, "progress": Progress(step, round(loss.item(), 6))}, path)
        loaded = torch.load(path, weights_only=False)
    model = loaded["model"]
    print(type(model) is Net, Net.__module__, loaded["progress"])
