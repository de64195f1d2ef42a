"""Jobs of share_packing.py: one kind keeps all processors busy, two kinds wait most of the time.

busy     multiplies matrices with all threads
loads    its dataset sleeps before each item, as one that reads from a slow disk or the network
asks     sleeps between two steps, with its turn, as one that waits for the answer of a simulator or a person
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS = ("busy", "loads", "asks")
BATCH = 8


class SlowItems(Dataset[torch.Tensor]):
    """Data set of random vectors, each with a delay."""

    def __init__(self, count: int, width: int, wait_s: float) -> None:
        self._items, self._wait_s = torch.randn(count, width), wait_s

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, place: int) -> torch.Tensor:
        time.sleep(self._wait_s)
        return self._items[place]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--wait-ms", type=float, default=0.0, help="for an item, or between two steps")
    args = parser.parse_args()
    torch.manual_seed(0)
    if args.kind != "busy":
        torch.set_num_threads(1)
    wait_s = args.wait_ms / 1000
    model = nn.Sequential(nn.Linear(args.width, args.width), nn.ReLU(), nn.Linear(args.width, args.width))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(x: torch.Tensor) -> float:
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    loss = 0.0
    if args.kind == "loads":
        for x in DataLoader(SlowItems(BATCH * args.steps, args.width, wait_s), BATCH):
            loss = step(x)
    else:
        x = torch.randn(args.width if args.kind == "busy" else BATCH, args.width)
        for _ in range(args.steps):
            loss = step(x)
            if wait_s:
                time.sleep(wait_s)
    print(f"loss {loss.hex()}")


if __name__ == "__main__":
    main()
