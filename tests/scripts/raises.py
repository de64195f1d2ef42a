"""The script raises ValueError after five steps.

It must give exit code 1 and a traceback that names this file, and lose no line of output.
"""

import torch

torch.manual_seed(24)
x = torch.randn(16, 4)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def check(step):
    if step == 5:
        raise ValueError("labels ran out at step 5")


for step in range(20):
    check(step)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}")
