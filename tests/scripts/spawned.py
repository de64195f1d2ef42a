"""Trains in two processes that it starts itself (gloo, averaged gradients): such a job keeps its lane whole."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def train(rank: int, meeting: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    torch.manual_seed(61)
    model = torch.nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(rank)
    for step in range(10):
        loss = model(torch.randn(16, 6, generator=data)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        if rank == 0:
            print(step, f"{loss:.9g}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, (f"{folder}/meeting",), nprocs=2)
    print("both have ended")
