"""The script overrides its globals with `exec(open(...).read())`.

It needs the current folder and a real module namespace.
"""

import torch

steps = 2
learning_rate = 0.01
exec(open("exec_open_settings.py").read())  # noqa: SIM115, PTH123
print("settings", {key: globals()[key] for key in ("steps", "learning_rate")})

torch.manual_seed(5)
x = torch.randn(24, 3)
labels = (x.sum(dim=1) > 0).long()
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
for step in range(steps):
    loss = torch.nn.functional.cross_entropy(model(x), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}")
