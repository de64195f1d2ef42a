"""An embedding and a transformer layer, with AdamW."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Embedding(5000, 128),
    nn.TransformerEncoderLayer(128, 4, dim_feedforward=512, dropout=0.1, batch_first=True),
)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(8):
    tokens = torch.randint(0, 5000, (16, 64))
    optimizer.zero_grad()
    loss = model(tokens).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
