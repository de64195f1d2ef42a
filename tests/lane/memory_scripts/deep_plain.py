"""Sixteen layers with activations that all wait for the backward pass."""

import torch
from torch import nn

torch.manual_seed(0)
segments = nn.ModuleList(
    nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.ReLU()))) for _ in range(4)
)
optimizer = torch.optim.SGD(segments.parameters(), lr=0.1)
inputs = torch.randn(1024, 256)
for _ in range(8):
    outputs = inputs
    for segment in segments:
        outputs = segment(outputs)
    loss = outputs.mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item().hex())
    del outputs
