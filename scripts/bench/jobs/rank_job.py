"""Rank that names its GPU in each call, and never makes it the current one: `rank_job.py STEPS`, for `gpu/ranks.py`.

Each iteration takes a part of the GPU's memory for a moment. It prints a digest of all parameters, and to stderr one
JSON object: how many iterations the processor was ahead of the GPU at the end, and on how many other GPUs this process
is.
"""

import hashlib
import json
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS repeats bit for bit only with one

import torch

from ecoshare.devices.nvidia import nvml

STEPS, WIDTH, BATCH, SHARE = int(sys.argv[1]), 2048, 2048, 0.3


def main() -> None:
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    own = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    work_bytes = int(SHARE * torch.cuda.get_device_properties(own).total_memory)
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(6))).to(own)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    x = torch.randn(BATCH, WIDTH).to(own)
    began_s = time.monotonic()
    for _ in range(STEPS):  # nothing asks for a value, so the processor runs ahead of the GPU
        work = torch.empty(work_bytes, dtype=torch.uint8, device=own)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        del work
    looped_s = time.monotonic()
    torch.cuda.synchronize(own)
    now_s = time.monotonic()
    ahead = (now_s - looped_s) / (now_s - began_s) * STEPS
    flat = torch.cat([each.detach().flatten().cpu() for each in model.parameters()])
    print(hashlib.sha256(flat.numpy().tobytes()).hexdigest())
    gpus = sum(os.getpid() in nvml.NvmlDevice(gpu.uuid).processes() for gpu in nvml.gpus())
    print(json.dumps({"ahead": ahead, "elsewhere": max(0, gpus - 1)}), file=sys.stderr)


main()
