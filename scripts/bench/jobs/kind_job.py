"""Trains in one of the ways in which scripts use a GPU: `kind_job.py KIND STEPS DEVICE`, for `bench/gpu/kinds.py`.

Prints a digest of all parameters, and to stderr the seconds of the loop.
"""

import hashlib
import os
import sys
import time

KIND, STEPS, DEVICE = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if KIND == "visible":  # scripts do so themselves, before torch is imported
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
elif KIND == "malloc":
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

PASSES = 2000 if KIND == "long" else 1
WIDTH, BATCH = (64, 32) if DEVICE == "cpu" else (1024, 256)


class Samples(Dataset[torch.Tensor]):
    """Batches that take a while to fetch."""

    def __init__(self, fetch_s: float) -> None:
        self.fetch_s = fetch_s

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.fetch_s)
        return torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(index))


def main() -> None:
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    model: nn.Module = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(6))).to(DEVICE)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.001)
    if KIND == "compile":
        model = torch.compile(model)  # type: ignore[assignment]
    began_s = time.monotonic()
    if KIND == "graph":
        replay(model, optimizer)
    else:
        train(model, optimizer)
    if DEVICE != "cpu":
        torch.cuda.synchronize()
    print(f"{time.monotonic() - began_s:.3f}", file=sys.stderr)
    flat = torch.cat([each.detach().flatten().cpu() for each in parameters])
    print(hashlib.sha256(flat.numpy().tobytes()).hexdigest())


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Loop over batches. Nothing in it asks for a value, so the processor runs ahead of the GPU."""
    workers = 2 if KIND == "pinned" else 0
    samples = Samples(0.015 if KIND == "fetches" else 0.0)
    batches = DataLoader(samples, batch_size=None, num_workers=workers, pin_memory=KIND == "pinned")
    scaler = torch.amp.GradScaler(DEVICE, enabled=KIND == "scaler")
    side = torch.cuda.Stream() if KIND == "streams" else None  # type: ignore[no-untyped-call]
    for batch in batches:
        x = batch.to(DEVICE, non_blocking=True)
        optimizer.zero_grad()
        for _ in range(PASSES):
            with torch.autocast(DEVICE, torch.float16 if DEVICE != "cpu" else torch.bfloat16, enabled=KIND == "scaler"):
                if side is None:
                    loss = model(x).square().mean()
                else:
                    side.wait_stream(torch.cuda.current_stream())
                    with torch.cuda.stream(side):
                        loss = model(x).square().mean()
                    torch.cuda.current_stream().wait_stream(side)
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def replay(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Loop over replays of a CUDA graph with a whole iteration."""
    x = torch.randn(BATCH, WIDTH, device=DEVICE)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        model(x).square().mean().backward()
        optimizer.step()

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for index in range(STEPS):
        x.copy_(torch.full((), float(index)), non_blocking=True)
        graph.replay()


main()
