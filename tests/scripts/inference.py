"""Inference alone under no_grad, without optimizer or loader.

Each forward of the model is one eval iteration.
"""

import torch
from torch import nn

torch.manual_seed(15)
model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10)).eval()
images = torch.randn(20, 8, 1, 6, 6)
labels = torch.randint(0, 10, (20, 8))

with torch.no_grad():
    for request in range(len(images)):
        logits = model(images[request])
        loss = nn.functional.cross_entropy(logits, labels[request])
        print(request, f"{loss:.9g}", logits.argmax(dim=1).tolist())
