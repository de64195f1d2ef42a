"""SGD for the matrices and AdamW for the rest, stepping back to back: two steps, one iteration."""

import torch
from torch import nn

torch.manual_seed(12)
tokens = torch.randint(0, 20, (16, 8))
model = nn.Sequential(nn.Embedding(20, 12), nn.Linear(12, 12), nn.LayerNorm(12), nn.ReLU(), nn.Linear(12, 20))
matrices = [p for p in model[1:].parameters() if p.ndim == 2]
chosen = {id(p) for p in matrices}
rest = [p for p in model.parameters() if id(p) not in chosen]
optimizers = [torch.optim.SGD(matrices, lr=0.1, momentum=0.9), torch.optim.AdamW(rest, lr=0.01)]

for step in range(15):
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    for optimizer in optimizers:
        optimizer.zero_grad()
    print(step, f"{loss:.9g}")
