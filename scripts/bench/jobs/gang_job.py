"""Training job of several ranks, as torchrun starts them: DistributedDataParallel on gloo. It prints its last loss."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(steps: int) -> str:
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.Tanh(), torch.nn.Linear(256, 16))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    draw = torch.Generator().manual_seed(1 + dist.get_rank())
    for _ in range(steps):
        loss = model(torch.randn(64, 128, generator=draw)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    last: str = loss.item().hex()
    return last


if __name__ == "__main__":
    dist.init_process_group("gloo")
    print(train(int(sys.argv[1])))
    dist.destroy_process_group()  # after the model is gone: one that outlives its group may hang in gloo's destructor
