"""Training job of bench_service_traces.py and bench_simulate.py: as many equal iterations as its argument says."""

import sys

import torch

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(128, 512)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    (model(data) - data).square().mean().backward()
    optimizer.step()
