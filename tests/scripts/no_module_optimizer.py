"""A functional loss over plain tensors with optimizers.

No forward is ever seen, so the steps are the boundaries. With --two, matrix and bias have an optimizer each:
an iteration ends when one steps for the second time.
"""

import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--two", action="store_true")
args = parser.parse_args()

torch.manual_seed(21)
x, labels = torch.randn(30, 6), torch.randint(0, 3, (30,))
weight = torch.zeros(6, 3, requires_grad=True)
bias = torch.zeros(3, requires_grad=True)
if args.two:
    optimizers = [torch.optim.Adam([weight], lr=0.05), torch.optim.SGD([bias], lr=0.1)]
else:
    optimizers = [torch.optim.Adam([weight, bias], lr=0.05)]

for step in range(20):
    loss = torch.nn.functional.cross_entropy(x @ weight + bias, labels)
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    print(step, f"{loss:.9g}")
