"""Trial of bench_sweep.py: one of three small models, trained for a number of iterations.

The trial runs as a script, and as a function for the tools that take one.
"""

import argparse
import sys
from collections.abc import Sequence

import torch
from torch import nn

MODELS = ("perceptron", "convolution", "recurrent")


class Recurrent(nn.Module):
    """GRU over sequences, with a linear layer on its last state."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._states, self._last = nn.GRU(8, width, batch_first=True), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self._last(self._states(x)[0][:, -1])
        return result


def build(name: str, width: int) -> tuple[nn.Module, torch.Tensor]:
    """Model and its inputs."""
    if name == "perceptron":
        return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10)), torch.randn(256, 64)
    if name == "convolution":
        layers = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten())
        return nn.Sequential(layers, nn.Linear(144, 10)), torch.randn(256, 1, 16, 16)
    return Recurrent(width), torch.randn(256, 12, 8)


def train(arguments: Sequence[str]) -> float:
    """Train; returns the last loss."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--width", type=int, default=32)
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, inputs = build(options.model, options.width)
    wanted = torch.randint(10, (256,))
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
    batch = 32
    for step in range(options.iterations):
        at = step * batch % 256
        loss = nn.functional.cross_entropy(model(inputs[at : at + batch]), wanted[at : at + batch])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return float(loss.item())


if __name__ == "__main__":
    print(f"loss={train(sys.argv[1:])!r}")
