"""Small training for sweeps: it prints its loss once an epoch, and its values decide how good it is."""

import argparse
import os
import sys
import time

import torch

import ecoshare

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--width", type=int, default=8)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--ms", type=float, default=0.0)
parser.add_argument("--fails", default="")
parser.add_argument("--report", action="store_true")
parser.add_argument("--unseeded", action="store_true")
options = parser.parse_args()

if not options.unseeded:
    torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(4, options.width), torch.nn.Tanh(), torch.nn.Linear(options.width, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
inputs = torch.randn(64, 4)
wanted = inputs.sum(1, keepdim=True)
for epoch in range(options.epochs):
    for _ in range(options.steps):
        optimizer.zero_grad()
        loss = (model(inputs) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        time.sleep(options.ms / 1000)
    if options.fails and os.environ.get("SEED", options.fails) == options.fails and epoch:
        sys.exit("this trial fails on purpose")
    if options.report:
        ecoshare.report(val_loss=loss, epoch=epoch)
    else:
        print(f"epoch {epoch}: val_loss={loss.item():.6e} seed={os.environ.get('SEED')}")
