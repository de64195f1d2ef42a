"""The script trains with dropout and a schedule, and validates after each epoch.

Eval iterations are counted apart from training.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(23)
x = torch.randn(60, 8)
data = TensorDataset(x, (x[:, :4].sum(dim=1) > 0).long())
train_set, validation_set = random_split(data, [40, 20])
train_loader = DataLoader(train_set, batch_size=10, shuffle=True)
validation_loader = DataLoader(validation_set, batch_size=10)
model = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.3), nn.Linear(24, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

for epoch in range(3):
    model.train()
    for batch, (inputs, labels) in enumerate(train_loader):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("train", epoch, batch, f"{loss:.9g}")
    scheduler.step()
    model.eval()
    total = 0.0
    with torch.no_grad():
        for inputs, labels in validation_loader:
            total += nn.functional.cross_entropy(model(inputs), labels, reduction="sum").item()
    print("validation", epoch, f"{total / len(validation_set):.9g}")
