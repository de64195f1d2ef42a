"""The script sets its own number of intra-op threads.

The choice, and the sums that follow from it, must not be changed nor leak to a neighbour.
"""

import torch

print("interop", torch.get_num_interop_threads() > 0)
torch.set_num_threads(1)
torch.manual_seed(44)
x = torch.randn(256, 64)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, torch.get_num_threads(), f"{loss:.9g}")
