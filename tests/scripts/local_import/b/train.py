"""The script imports its own `model` and, late in the middle of training, its own `tuner`.

Job a has another `model`, and ecoshare comes with another `tuner`.
"""

import torch
from model import NAME, Net


def tuned_rate(losses):
    import tuner

    return tuner.suggest(losses)


torch.manual_seed(4)
x = torch.randn(32, 6)
y = x.prod(dim=1, keepdim=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

print(NAME)
losses = []
for step in range(15):
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    print(step, f"{loss:.9g}")
    if step == 7:
        optimizer.param_groups[0]["lr"] = tuned_rate(losses)
        print("rate", optimizer.param_groups[0]["lr"])
