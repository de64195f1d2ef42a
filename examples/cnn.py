"""Train a small convolutional network to name the shapes on noisy 20 x 20 images."""

import argparse
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import shapes


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    # cuBLAS repeats bit for bit only with a fixed workspace; the CPU ignores this.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)


class ConvBlock(nn.Sequential):
    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__(
            nn.Conv2d(channels_in, channels_out, kernel_size=3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(channels_out),
            nn.ReLU(inplace=True),
        )


class ShapeNet(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            ConvBlock(1, 24, stride=1), ConvBlock(24, 48, stride=2), ConvBlock(48, 96, stride=2)
        )
        self.dropout = nn.Dropout(0.2)
        self.classifier = nn.Linear(96, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        pooled = self.features(images).mean(dim=(2, 3))
        return self.classifier(self.dropout(pooled))


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, device: torch.device) -> tuple[float, float]:
    """Mean loss and accuracy over a loader."""
    model.eval()
    loss = torch.zeros((), device=device)
    correct = torch.zeros((), device=device)
    count = 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        logits = model(images)
        loss += F.cross_entropy(logits, labels, reduction="sum")
        correct += (logits.argmax(dim=1) == labels).sum()
        count += len(labels)
    return (loss / count).item(), (correct / count).item()


def main() -> None:
    args = parse_args()
    seed_everything(args.seed)
    device = torch.device(args.device)

    painter = torch.Generator().manual_seed(args.seed)
    train_set = TensorDataset(*shapes.draw(3200, painter, noise=0.3))
    valid_set = TensorDataset(*shapes.draw(800, painter, noise=0.3))
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True)
    valid_loader = DataLoader(valid_set, batch_size=200)

    model = ShapeNet(len(shapes.NAMES)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-2)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=args.lr, epochs=args.epochs, steps_per_epoch=len(train_loader)
    )
    print(f"{len(train_set)} images, {sum(p.numel() for p in model.parameters())} parameters", flush=True)

    valid_accuracy = 0.0
    for epoch in range(1, args.epochs + 1):
        model.train()
        train_loss = torch.zeros((), device=device)
        for images, labels in train_loader:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            scheduler.step()
            train_loss += loss.detach()
        mean_loss = (train_loss / len(train_loader)).item()
        valid_loss, valid_accuracy = evaluate(model, valid_loader, device)
        print(
            f"epoch {epoch:2d}  train loss {mean_loss:.9g}  "
            f"valid loss {valid_loss:.9g}  valid accuracy {valid_accuracy:.4f}",
            flush=True,
        )
    print(f"result: validation accuracy {valid_accuracy:.4f} after {args.epochs} epochs")


if __name__ == "__main__":
    main()
