"""Train a small convolutional network to tell drawn shapes apart."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIZE = 20


def draw_shapes(count: int) -> TensorDataset:
    """Noisy pictures of discs (0), squares (1) and crosses (2) at random places."""
    labels = torch.randint(3, (count,))
    x, y = torch.randint(7, SIZE - 7, (2, count, 1, 1))
    columns, rows = torch.arange(SIZE).view(1, 1, -1) - x, torch.arange(SIZE).view(1, -1, 1) - y
    discs = columns**2 + rows**2 <= 36
    squares = (columns.abs() <= 5) & (rows.abs() <= 5)
    crosses = ((columns.abs() <= 1) & (rows.abs() <= 6)) | ((rows.abs() <= 1) & (columns.abs() <= 6))
    shapes = torch.stack([discs, squares, crosses])[labels, torch.arange(count)].float()
    return TensorDataset((shapes + 0.4 * torch.randn_like(shapes)).unsqueeze(1), labels)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train, test = DataLoader(draw_shapes(2048), args.batch_size, shuffle=True), DataLoader(draw_shapes(512), 256)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * (SIZE // 4) ** 2, 3),
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        model.train()
        for images, labels in train:
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum(int((model(images.to(device)).argmax(1).cpu() == labels).sum()) for images, labels in test)
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, {right / 512:.1%} of the test pictures right", flush=True)


if __name__ == "__main__":
    main()
