"""Activation checkpointing, re-entrant and not, with dropout.

Blocks run again as roots in the middle of the backward pass. With --sequential the script checkpoints the
children itself, so there is no root above them, and the re-entrant form runs all but the last under no_grad:
the first forward with gradients after a step comes in mid-iteration.
"""

import argparse

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

parser = argparse.ArgumentParser()
parser.add_argument("--sequential", action="store_true")
args = parser.parse_args()


def block():
    return nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.Dropout(0.2))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(block(), block(), block())
        self.head = nn.Linear(12, 1)

    def forward(self, x):
        x = checkpoint(self.blocks[0], x, use_reentrant=False)
        x = checkpoint(self.blocks[1], x, use_reentrant=True)
        return self.head(self.blocks[2](x))


torch.manual_seed(27)
x = torch.randn(32, 12, requires_grad=True)
y = x.detach().amax(dim=1, keepdim=True)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(12):
    if args.sequential:
        prediction = model.head(checkpoint_sequential(model.blocks, 3, x, use_reentrant=True))
    else:
        prediction = model(x)
    loss = nn.functional.mse_loss(prediction, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}")
