"""The script reads a table from the current folder, writes a file into it and reads that back.

The current folder must be the job's.
"""

from pathlib import Path

import torch

torch.manual_seed(1)

lines = Path("relative_paths.csv").read_text().splitlines()
table = torch.tensor([[float(cell) for cell in line.split(",")] for line in lines])
x, y = table[:, :-1], table[:, -1:]
model = torch.nn.Linear(x.shape[1], 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

losses = []
for _ in range(12):
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(f"{loss:.9g}")

Path("relative_paths.out").write_text("\n".join(losses) + "\n")
print(Path("relative_paths.out").read_text(), end="")
