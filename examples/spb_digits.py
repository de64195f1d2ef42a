"""Train a perceptron on scikit-learn's digits on several ranks, each of which propagates back through a part of it.

ecoshare run --device cpu/2 examples/spb.yaml --policy jigsaw --lanes 2

torchrun --standalone --nproc-per-node=2 examples/spb_digits.py
"""

import argparse
import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ecoshare.contrib.spb import partial


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank")
    parser.add_argument("--width", type=int, default=128, help="of the hidden layers")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--full", action="store_true", help="full backpropagation, by DistributedDataParallel")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def make_model(width: int) -> nn.Sequential:
    hidden = [each for _ in range(2) for each in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), *hidden, nn.Linear(width, 10))


def train(args: argparse.Namespace, device: torch.device) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    order = torch.Generator().manual_seed(args.seed)
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32, device=device) / 16
    labels = torch.tensor(digits.target, device=device)
    places = torch.randperm(len(labels), generator=order)
    test, rest = places[:360], places[360:]

    model = make_model(args.width).to(device)
    trained = DistributedDataParallel(model) if args.full else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    step = 0
    for epoch in range(1, args.epochs + 1):
        mixed = rest[torch.randperm(len(rest), generator=order)]  # the same on all ranks
        total = torch.zeros((), device=device)
        for batch in mixed.split(args.batch_size * ranks)[:-1]:
            mine = batch[rank::ranks]
            optimizer.zero_grad()
            with nullcontext() if args.full else partial(model, rank, ranks, step):
                loss = F.cross_entropy(trained(images[mine]), labels[mine])
                loss.backward()
            optimizer.step()
            total += loss.detach()
            step += 1
        if rank == 0:
            print(f"epoch {epoch:2d}  train loss of rank 0 {total.item():.9g}", flush=True)
    if rank == 0:
        with torch.no_grad():
            right = (model(images[test]).argmax(dim=1) == labels[test]).float().mean().item()
        print(f"result: test accuracy {right:.4f} after {step} steps")


def main() -> None:
    args = parse_args()
    torch.manual_seed(args.seed)  # the same weights on all ranks
    if args.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
    else:
        device = torch.device(args.device)
        dist.init_process_group("gloo")
    train(args, device)  # the model is gone afterwards: one that outlives its group may hang in gloo's destructor
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
