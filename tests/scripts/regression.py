"""A polynomial is fitted with gradient descent by hand: a module, batches made here, no optimizer, no loader.

With --backend the module is compiled, with --step the function that makes the gradients too.
"""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--backend")
parser.add_argument("--step", action="store_true")
args = parser.parse_args()

DEGREE = 4
torch.manual_seed(60)
wanted = torch.randn(DEGREE, 1) * 5
bias = torch.randn(1) * 5


def batch(size=32):
    x = torch.randn(size)
    features = torch.stack([x**power for power in range(1, DEGREE + 1)], 1)
    return features, features.mm(wanted) + bias


fc = nn.Linear(DEGREE, 1)


def gradients(inputs, targets):
    output = nn.functional.smooth_l1_loss(fc(inputs), targets)
    output.backward()
    return output.detach()


if args.backend:
    compiled = torch.compile(gradients if args.step else fc, backend=args.backend)
    if args.step:
        gradients = compiled
    else:
        fc = compiled

for step in range(24):
    inputs, targets = batch()
    fc.zero_grad()
    loss = gradients(inputs, targets).item()
    for parameter in fc.parameters():
        parameter.data.add_(-0.1 * parameter.grad)
    print(step, f"{loss:.9g}")
print("weights", [f"{value:.9g}" for value in fc.weight.view(-1).tolist()], f"{fc.bias.item():.9g}")
