"""Jobs of gpu_check.py's mix: small models of eight kinds on invented data, each bound by another resource.

    python mix_job.py KIND --steps N --device cuda    trains, and prints losses bit for bit
    python mix_job.py --pace --device cuda            prints seconds a step of each kind, alone

| kind | bound by |
|---|---|
| mlp, narrow | launches: kernels of microseconds |
| recurrent | launches and latency: a step waits for the one before |
| cnn, wide | arithmetic |
| transformer | arithmetic and memory |
| embedding | memory: all of a large table is written in each step |
| loader | its input, which the processor makes |

A step is one iteration: one forward, one backward, one optimizer step.
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

BIG = {
    "mlp": {"width": 256, "depth": 3},
    "narrow": {"width": 64, "depth": 24},
    "recurrent": {"width": 256, "length": 64},
    "cnn": {"width": 64, "batch": 256},
    "wide": {"width": 4096, "depth": 3},
    "transformer": {"width": 512, "depth": 4, "length": 128},
    "embedding": {"rows": 2_000_000, "width": 64},
    "loader": {"width": 32, "batch": 32},
}
SMALL = {
    "mlp": {"width": 64, "depth": 3},
    "narrow": {"width": 16, "depth": 24},
    "recurrent": {"width": 32, "length": 16},
    "cnn": {"width": 8, "batch": 16},
    "wide": {"width": 512, "depth": 3},
    "transformer": {"width": 64, "depth": 2, "length": 32},
    "embedding": {"rows": 20_000, "width": 32},
    "loader": {"width": 8, "batch": 8},
}
"""Sizes by device: for a large GPU, and for processors, on which the scripts are only tried out."""

KINDS = tuple(BIG)
LINES = 10
"""Number of lines that a job prints; reading a loss waits for the device."""

RATE, RATES = 0.01, {"embedding": 100.0}
"""Learning rates: the usual one, and others by kind, since a row of the embedding is in a small part of the batch."""

PACE_S, PACE_WARM_UP = 1.0, 10


class Residual(nn.Module):
    """Layers, each added to its input."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + F.relu(layer(x)) / len(self.layers)  # else what comes out grows with the depth, and so do gradients
        return x


class Convolutions(nn.Module):
    """Strided convolutions: pooling has no deterministic backward everywhere."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv2d(each, each_out, 3, stride, 1)
            for each, each_out, stride in ((3, width, 1), (width, width, 2), (width, 2 * width, 2))
        )
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.relu(layer(x))
        result: Tensor = self.head(x.mean((2, 3)))
        return result


class Recurrent(nn.Module):
    """An LSTM, one step of the sequence at a time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = state = x.new_zeros(x.shape[1], x.shape[2])
        for each in x:
            hidden, state = self.cell(each, (hidden, state))
        result: Tensor = self.head(hidden)
        return result


class Attention(nn.Module):
    """Self-attention by plain products: fused kernels do not repeat bit for bit on every GPU."""

    def __init__(self, width: int, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.project_in = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)
        self.forward_part = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.project_in(self.norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        weights = (query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)).softmax(-1)
        x = x + self.project_out((weights @ value).transpose(1, 2).reshape(batch, length, width))
        result: Tensor = x + self.forward_part(x)
        return result


class Pictures(Dataset[tuple[Tensor, Tensor]]):
    """Data set of noise that is filtered at each access: work for the processor."""

    def __init__(self, count: int = 256) -> None:
        self._noise = torch.randn(count, 3, 32, 32)

    def __len__(self) -> int:
        return len(self._noise)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        spectrum = torch.fft.rfft2(self._noise[place])
        for _ in range(8):
            spectrum = torch.fft.rfft2(torch.fft.irfft2(spectrum * 0.99))
        return torch.fft.irfft2(spectrum), self._noise[place].sum().abs().long() % 10


def trainer(kind: str, device: torch.device) -> Callable[[], Tensor]:
    """Function that does one step of a kind and returns its loss on the device."""
    size = (BIG if device.type == "cuda" else SMALL)[kind]
    width, batches = size["width"], None
    if kind == "mlp":
        model: nn.Module = nn.Sequential(
            *(part for _ in range(size["depth"]) for part in (nn.Linear(width, width), nn.ReLU()))
        )
        inputs = torch.randn(64, width)
    elif kind in ("narrow", "wide"):
        model, inputs = Residual(width, size["depth"]), torch.randn(32 if kind == "narrow" else width, width)
    elif kind == "recurrent":
        model, inputs = Recurrent(width), torch.randn(size["length"], 64, width)
    elif kind == "transformer":
        model = nn.Sequential(*(Attention(width) for _ in range(size["depth"])))
        inputs = torch.randn(16, size["length"], width)
    elif kind == "embedding":
        model, inputs = nn.Embedding(size["rows"], width), torch.randint(size["rows"], (8192,))
    else:
        model, inputs = Convolutions(width), torch.randn(size["batch"], 3, 32, 32)
        if kind == "loader":
            batches = endless(DataLoader(Pictures(), size["batch"], shuffle=True))
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATES.get(kind, RATE), momentum=0.9)
    inputs = inputs.to(device)
    targets = torch.randint(10, (len(inputs),)).to(device)

    def loss_of(x: Tensor, wanted: Tensor) -> Tensor:
        outputs: Tensor = model(x.to(device))
        if isinstance(model, Convolutions):
            return F.cross_entropy(outputs, wanted.to(device))
        return (outputs - 1.0).square().mean()

    def step() -> Tensor:
        loss = loss_of(*(next(batches) if batches is not None else (inputs, targets)))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        detached: Tensor = loss.detach()
        return detached

    return step


def endless(loader: DataLoader[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of a loader, again and again."""
    while True:
        yield from loader


def repeatable() -> None:
    """Make runs equal bit for bit, by PyTorch's notes on reproducibility."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # eight jobs at once must not fight for the processors with all threads each
    torch.manual_seed(0)


def pace(device: torch.device) -> dict[str, float]:
    """Time (s) of a step, by kind, after some to warm up."""
    found = {}
    for kind in KINDS:
        step = trainer(kind, device)
        for _ in range(PACE_WARM_UP):
            step().item()
        began_s, steps = time.monotonic(), 0
        while time.monotonic() - began_s < PACE_S:
            for _ in range(5):
                loss = step()
            loss.item()
            steps += 5
        found[kind] = (time.monotonic() - began_s) / steps
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", nargs="?", choices=KINDS)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pace", action="store_true")
    args = parser.parse_args()
    repeatable()
    device = torch.device(args.device)
    if args.pace:
        print(json.dumps(pace(device)))
        return
    if args.kind is None:
        parser.error("which kind of job?")
    step = trainer(args.kind, device)
    every = max(1, args.steps // LINES)
    for number in range(1, args.steps + 1):
        loss = step()
        if number % every == 0 or number == args.steps:
            print(f"step {number} loss {float(loss).hex()}", flush=True)
    if not math.isfinite(float(loss)):
        sys.exit(f"{args.kind} has diverged: equal losses would say nothing")


if __name__ == "__main__":
    main()
