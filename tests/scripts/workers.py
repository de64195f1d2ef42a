"""Two persistent loader workers over two epochs, with a data set that runs a module and draws random numbers.

Forwards in a worker are no iterations of the job, and hooks must be off there. The worker's seed comes from
the job's default generator: one draw more or less in the job would change every sample.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Encoded(Dataset):
    def __init__(self):
        self.items = torch.randn(48, 6)
        self.encoder = nn.Sequential(nn.Linear(6, 4), nn.Tanh()).requires_grad_(False)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        item = self.items[index] + 0.1 * torch.rand(6)
        with torch.no_grad():
            return self.encoder(item), item.sum()


torch.manual_seed(9)
loader = DataLoader(Encoded(), batch_size=6, shuffle=True, num_workers=2, persistent_workers=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(2):
    for batch, (x, y) in enumerate(loader):
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(epoch, batch, f"{loss:.9g}")
