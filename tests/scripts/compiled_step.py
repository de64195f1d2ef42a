"""The whole training step under torch.compile, with the optimizer's step inside it or (--apart) after it."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="inductor")
parser.add_argument("--apart", action="store_true")
args = parser.parse_args()

torch.manual_seed(29)
batches = torch.randn(10, 16, 6)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.compile(backend=args.backend)
def train_step(x):
    loss = nn.functional.mse_loss(model(x), x.sin())
    loss.backward()
    if not args.apart:
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


for step, batch in enumerate(batches):
    loss = train_step(batch)
    if args.apart:
        optimizer.step()
        optimizer.zero_grad()
    print(step, f"{loss:.9g}")
