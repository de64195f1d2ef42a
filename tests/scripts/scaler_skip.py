"""A GradScaler that skips three of fourteen steps because of infinite gradients.

A skipped step ends no iteration.
"""

import torch
from torch import nn

torch.manual_seed(14)
x = torch.randn(32, 8)
labels = x.argmax(dim=1)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=4)

for step in range(14):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x), labels)
    scaled = scaler.scale(loss)
    if step in (2, 3, 9):
        scaled = scaled * float("inf")
    optimizer.zero_grad()
    scaled.backward()
    scaler.step(optimizer)
    scaler.update()
    print(step, f"{loss:.9g}", "scale", scaler.get_scale())
