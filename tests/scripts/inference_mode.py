"""Inference under inference_mode with a loader; modules without parameters run before and after the model.

Only the model is an eval iteration; the scaling and the softmax are root forwards too. Tensors made here are
inference tensors: an in-place operation on them outside would raise.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Scale(nn.Module):
    def forward(self, x):
        return (x - x.mean(dim=1, keepdim=True)) / x.std(dim=1, keepdim=True)


torch.manual_seed(16)
loader = DataLoader(TensorDataset(torch.randn(64, 9)), batch_size=4)
scale, model, softmax = Scale(), nn.Linear(9, 5).eval(), nn.Softmax(dim=1)

with torch.inference_mode():
    for batch, (x,) in enumerate(loader):
        probabilities = softmax(model(scale(x)))
        entropy = -(probabilities * probabilities.log()).sum(dim=1).mean()
        print(batch, f"{entropy:.9g}", probabilities.is_inference())
