"""A model under torch.compile(fullgraph=True).

A forward hook on it breaks the graph, or is silently never called.
"""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="inductor")
args = parser.parse_args()

torch.manual_seed(28)
x = torch.randn(16, 8)
y = x.cumsum(dim=1)
model = torch.compile(
    nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)), fullgraph=True, backend=args.backend
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(10):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}")
