"""The script prints its losses on one line and ends without a newline.

Output is kept byte for byte, never line by line.
"""

import torch

torch.manual_seed(17)
x = torch.randn(10, 3)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    loss = (model(x) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss:.9g}", end=" ")
print("done", end="")
