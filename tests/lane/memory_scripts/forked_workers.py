"""Worker processes are forked in each iteration, and say whether a profiler is on in them."""

import torch
from torch import nn
from torch.utils.data import DataLoader


class Batches(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.full((256,), float(index)), torch._C._autograd._profiler_enabled()


torch.manual_seed(0)
model = nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(7):
    for batch, recorded in DataLoader(Batches(), batch_size=4, num_workers=1):
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item().hex(), recorded.tolist())
