"""A model compiled in place with model.compile().

The model keeps its type, so it looks as before, but its call with all hooks is traced into the graph.
"""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="inductor")
args = parser.parse_args()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(5, 20)
        self.out = nn.Linear(20, 1)

    def forward(self, x):
        return self.out(self.hidden(x).sigmoid())


torch.manual_seed(30)
x = torch.randn(32, 5)
y = x.square().sum(dim=1, keepdim=True)
model = Net()
model.compile(backend=args.backend)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
print(type(model).__name__)
for step in range(10):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}")
