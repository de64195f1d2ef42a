"""The script ends with sys.exit(3) in the middle of training.

The exit code is the job's, and nothing printed may be lost.
"""

import sys

import torch

torch.manual_seed(7)
x = torch.randn(32, 5)
model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)

for step in range(100):
    loss = (model(x) - x).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}")
    if step == 9:
        print("diverged, giving up")
        sys.exit(3)
