"""The script builds its vocabulary from a sorted set.

The output repeats under any hash seed, including the seed that warm jobs share.
"""

import torch
from torch import nn

text = "several jobs share one device and each of them believes that it is alone with the device"
words = text.split()
vocabulary = sorted(set(words))
index = {word: k for k, word in enumerate(vocabulary)}
print(len(vocabulary), vocabulary[:4])

torch.manual_seed(46)
tokens = torch.tensor([index[word] for word in words])
model = nn.Sequential(nn.Embedding(len(vocabulary), 8), nn.Linear(8, len(vocabulary)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for step in range(12):
    loss = nn.functional.cross_entropy(model(tokens[:-1]), tokens[1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss:.9g}")
