"""The script warns once in its loop and once through torch: both go to stderr, once each, and name this file."""

import sys
import warnings

import torch

torch.manual_seed(48)
x = torch.randn(10, 1)
y = torch.randn(10)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    loss = torch.nn.functional.mse_loss(model(x), y)  # (10, 1) and (10,): torch warns
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}")
    if step % 4 == 3:
        warnings.warn("the learning rate looks high", stacklevel=1)
print("end of warnings", file=sys.stderr)
