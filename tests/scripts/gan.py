"""A generator and a discriminator that step in turn.

Each loop is two iterations, as forwards lie between the two steps.
"""

import torch
from torch import nn

torch.manual_seed(40)
real = torch.randn(32, 2) * 0.5 + 2
generator = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
discriminator = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
optimizer_g = torch.optim.Adam(generator.parameters(), lr=0.005, betas=(0.5, 0.999))
optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=0.005, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(32, 1), torch.zeros(32, 1)

for step in range(10):
    fake = generator(torch.randn(32, 3))
    loss_d = criterion(discriminator(real), ones) + criterion(discriminator(fake.detach()), zeros)
    optimizer_d.zero_grad()
    loss_d.backward()
    optimizer_d.step()

    loss_g = criterion(discriminator(fake), ones)
    optimizer_g.zero_grad()
    loss_g.backward()
    optimizer_g.step()
    print(step, f"{loss_d:.9g}", f"{loss_g:.9g}")
