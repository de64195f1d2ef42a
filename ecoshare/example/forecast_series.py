"""Train a small recurrent network to forecast a noisy signal."""

import argparse

import torch
from torch import nn

HISTORY = 32


class Forecaster(nn.Module):
    """The next value of a series, from the values before it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.recurrent = nn.GRU(1, width, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, history: torch.Tensor) -> torch.Tensor:
        states, _ = self.recurrent(history)
        return self.head(states[:, -1])


def sample(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pieces of a sum of two waves with noise, and the value that follows each."""
    start = 1000 * torch.rand(count, 1)
    time = start + torch.arange(HISTORY + 1)
    series = torch.sin(0.3 * time) + 0.5 * torch.sin(0.11 * time) + 0.05 * torch.randn(count, HISTORY + 1)
    return series[:, :-1].unsqueeze(-1), series[:, -1:]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--width", type=int, default=48)
    args = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Forecaster(args.width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    for step in range(1, args.steps + 1):
        history, value = (part.to(device) for part in sample(args.batch_size))
        loss = nn.functional.mse_loss(model(history), value)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: error {loss.item() ** 0.5:.3f}", flush=True)


if __name__ == "__main__":
    main()
