"""The script profiles itself from its fifth iteration on."""

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

torch.manual_seed(0)
model = nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(64, 256)
own = profile(activities=[ProfilerActivity.CPU])
for step in range(8):
    loss = model(inputs).pow(2).mean()
    if step == 4:
        own.start()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item().hex())
own.stop()
print(sum(event.count for event in own.key_averages() if event.key == "aten::addmm"))
