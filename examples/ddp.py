"""Train a network to name shapes on two devices at once, with DistributedDataParallel, as torchrun starts it.

torchrun --standalone --nproc-per-node=2 examples/ddp.py
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import shapes


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", type=Path, help="file for the state after each epoch")
    parser.add_argument("--resume", action="store_true", help="go on from the state")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    # cuBLAS repeats bit for bit only with a fixed workspace; the CPU ignores this.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)


def make_model(classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 5 * 5, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )


@torch.no_grad()
def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()
    right = (model(images).argmax(dim=1) == labels).float().mean().item()
    model.train()
    return right


def save(path: Path, **state: object) -> None:
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)  # a stop in the middle leaves the state before


def train(args: argparse.Namespace, device: torch.device) -> None:
    rank = dist.get_rank()
    painter = torch.Generator().manual_seed(args.seed)
    train_set = TensorDataset(*shapes.draw(3200, painter, noise=0.3))
    images, labels = (tensor.to(device) for tensor in shapes.draw(800, painter, noise=0.3))
    sampler = DistributedSampler(train_set, seed=args.seed)  # each rank has its own half of the images
    loader = DataLoader(train_set, args.batch_size, sampler=sampler)

    model = DistributedDataParallel(make_model(len(shapes.NAMES)).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    done = 0
    if args.resume and args.state.exists():
        state = torch.load(args.state, map_location=device)
        done = state["epochs"]
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    if rank == 0:
        print(f"{len(train_set)} images, {dist.get_world_size()} ranks, {done} epochs done", flush=True)

    for epoch in range(done + 1, args.epochs + 1):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for batch, names in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batch.to(device)), names.to(device))
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            mean_loss = total.item() / len(loader) / dist.get_world_size()
            print(f"epoch {epoch:2d}  train loss {mean_loss:.9g}", flush=True)
            if args.state:
                save(args.state, epochs=epoch, model=model.module.state_dict(), optimizer=optimizer.state_dict())
    if rank == 0:
        print(f"result: validation accuracy {accuracy(model.module, images, labels):.4f} after {args.epochs} epochs")


def main() -> None:
    args = parse_args()
    seed_everything(args.seed)
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
