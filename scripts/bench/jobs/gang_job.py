"""Training job of several ranks, as torchrun starts them: DistributedDataParallel on NCCL or gloo.

It prints the last loss of its rank.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(steps: int, device: torch.device) -> str:
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.Tanh(), torch.nn.Linear(256, 16)).to(device)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    draw = torch.Generator().manual_seed(1 + dist.get_rank())
    for _ in range(steps):
        loss = model(torch.randn(64, 128, generator=draw).to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    last: str = loss.item().hex()
    return last


if __name__ == "__main__":
    if torch.cuda.is_available():
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS repeats bit for bit only with one
        torch.use_deterministic_algorithms(True)
        own = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(own)
        dist.init_process_group("nccl")
    else:
        own = torch.device("cpu")
        dist.init_process_group("gloo")
    sys.stdout.write(f"{train(int(sys.argv[1]), own)}\n")  # in one piece: torchrun's ranks may share a file
    dist.destroy_process_group()  # after the model is gone: one that outlives its group may hang in gloo's destructor
