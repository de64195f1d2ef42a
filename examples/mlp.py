"""Train a multilayer perceptron to tell the three arms of a noisy spiral apart."""

import argparse
import os
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ARMS = 3


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    # cuBLAS repeats bit for bit only with a fixed workspace; the CPU ignores this.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)


def make_spiral(points_per_arm: int) -> TensorDataset:
    """Points on three arms that wind once and a half around the origin, as six features each."""
    features, labels = [], []
    for arm in range(ARMS):
        radius = np.sqrt(np.random.uniform(0.01, 1.0, points_per_arm))
        angle = 3 * np.pi * radius + 2 * np.pi * arm / ARMS
        angle += np.random.normal(0.0, 0.42, points_per_arm)
        x, y = radius * np.cos(angle), radius * np.sin(angle)
        # Two columns say nothing and two repeat what is known: the network has to find out which.
        noise = np.random.normal(0.0, 0.5, (2, points_per_arm))
        features.append(np.stack([x, y, x * y, x**2 - y**2, *noise], axis=1))
        labels.append(np.full(points_per_arm, arm))
    return TensorDataset(
        torch.from_numpy(np.concatenate(features)).float(), torch.from_numpy(np.concatenate(labels)).long()
    )


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, device: torch.device) -> tuple[float, float]:
    """Mean loss and accuracy over a loader."""
    model.eval()
    loss = torch.zeros((), device=device)
    correct = torch.zeros((), device=device)
    count = 0
    for features, labels in loader:
        features, labels = features.to(device), labels.to(device)
        logits = model(features)
        loss += F.cross_entropy(logits, labels, reduction="sum")
        correct += (logits.argmax(dim=1) == labels).sum()
        count += len(labels)
    return (loss / count).item(), (correct / count).item()


def main() -> None:
    args = parse_args()
    seed_everything(args.seed)
    device = torch.device(args.device)

    train_loader = DataLoader(make_spiral(1600), args.batch_size, shuffle=True)
    valid_loader = DataLoader(make_spiral(400), batch_size=400)
    model = nn.Sequential(
        nn.Linear(6, 384),
        nn.ReLU(),
        nn.Linear(384, 384),
        nn.ReLU(),
        nn.Linear(384, 384),
        nn.ReLU(),
        nn.Linear(384, ARMS),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)

    valid_accuracy = 0.0
    for epoch in range(1, args.epochs + 1):
        model.train()
        train_loss = torch.zeros((), device=device)
        for features, labels in train_loader:
            features, labels = features.to(device), labels.to(device)
            loss = F.cross_entropy(model(features), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            train_loss += loss.detach()
        scheduler.step()

        mean_loss = (train_loss / len(train_loader)).item()
        valid_loss, valid_accuracy = evaluate(model, valid_loader, device)
        if epoch == 1 or epoch % 4 == 0 or epoch == args.epochs:
            print(
                f"epoch {epoch:3d}  train loss {mean_loss:.9g}  "
                f"valid loss {valid_loss:.9g}  valid accuracy {valid_accuracy:.4f}",
                flush=True,
            )
    print(f"result: validation accuracy {valid_accuracy:.4f} after {args.epochs} epochs")


if __name__ == "__main__":
    main()
