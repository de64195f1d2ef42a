"""Transforms and a criterion that are modules.

The first root forward of a step is not the model, nor is the last.
"""

import torch
from torch import nn


class Normalize(nn.Module):
    def forward(self, x):
        return (x - x.mean()) / x.std()


class RandomShift(nn.Module):
    def forward(self, x):
        return x.roll(int(torch.randint(-2, 3, ())), dims=-1)


torch.manual_seed(31)
images, labels = torch.rand(32, 1, 8, 8), torch.randint(0, 4, (32,))
transform = nn.Sequential(Normalize(), RandomShift())
model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 4))
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(14):
    loss = criterion(model(transform(images)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}")
