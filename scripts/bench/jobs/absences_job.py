"""Jobs of bench_absences.py: `loads STEPS FETCH_MS WORK DONE` waits for its data, `trains WORK DONE` never does.

The first prints its mean time (ms) of an iteration, after the first ten, and makes the file `DONE`. The second trains
until that file is there.
"""

import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIRST = 10


class Slow(Dataset[torch.Tensor]):
    """Data set with batches that take `fetch_s` seconds to make."""

    def __init__(self, steps: int, fetch_s: float) -> None:
        self._steps, self._fetch_s = steps, fetch_s

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self._fetch_s)
        return torch.full((128,), index / self._steps)


def main() -> None:
    """Train as one of the two."""
    kind, *more = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    x, model = torch.randn(128, 128), nn.Linear(128, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(work: int, batch: torch.Tensor | float) -> None:
        nonlocal x
        for _ in range(work):
            x = (x + batch).sigmoid()
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    if kind == "trains":
        while not Path(more[1]).exists():
            step(int(more[0]), 0.0)
        return
    steps, fetch_ms, work = map(int, more[:3])
    began_s = 0.0
    for index, batch in enumerate(DataLoader(Slow(steps, fetch_ms / 1000), num_workers=2)):
        step(work, batch)
        if index == FIRST - 1:
            began_s = time.monotonic()
    passed_s = time.monotonic() - began_s
    Path(more[3]).touch()
    print(1e3 * passed_s / (steps - FIRST))


if __name__ == "__main__":
    main()
