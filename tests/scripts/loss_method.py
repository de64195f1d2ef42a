"""The script calls model.loss(x) and model.generate(x), never model(x).

The children are the roots, several of them in a step.
"""

import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 8)
        self.mix = nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, 12)

    def loss(self, tokens):
        hidden, _ = self.mix(self.embed(tokens[:, :-1]))
        return nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), tokens[:, 1:].flatten())

    @torch.no_grad()
    def generate(self, tokens, count):
        for _ in range(count):
            hidden, _ = self.mix(self.embed(tokens))
            tokens = torch.cat([tokens, self.head(hidden[:, -1]).argmax(dim=1, keepdim=True)], dim=1)
        return tokens


torch.manual_seed(41)
tokens = torch.randint(0, 12, (8, 7))
model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for step in range(12):
    loss = model.loss(tokens)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}")
    if step % 6 == 5:
        print("sample", model.generate(tokens[:1, :2], 5).tolist())
