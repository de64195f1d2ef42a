"""Two processes of the script's own that train together: torch.multiprocessing.spawn, gloo, averaged gradients.

They end with os._exit: a process that ends in the ordinary way sometimes aborts, even alone, while the interpreter
shuts down under gloo's threads (seen with torch 2.13 in 1 of 6 runs).
"""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def train(rank, world, store):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    torch.manual_seed(40)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for step in range(10):
        x = torch.randn(16, 4, generator=generator)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
        optimizer.step()
        if rank == 0:
            print(step, f"{loss:.9g}", flush=True)
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, args=(2, folder + "/store"), nprocs=2)
    print("done")
