"""Predict clicks with a recommendation model (Naumov et al., 2019). Its embeddings are in another process.

The click log is made up, with a skew of the published kind: 1 % of the rows take 92 % of the accesses. With
`--lookahead`, the script fetches the rows of that many coming batches early, and keeps each while one of them needs it
(Agarwal et al., "Bagpipe", 2023). It stores a row before it asks for it again, so the losses stay the same.
"""

import argparse
import os
import subprocess
import sys
from multiprocessing.connection import Client
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

ROWS, DIM = 200_000, 16
FEATURES, DENSE = 8, 13
HOT_ROWS, HOT_ACCESSES = 0.01, 0.92


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--lookahead", type=int, default=0, help="batches of which the rows are fetched early")
    parser.add_argument("--delay", type=float, default=0.02, help="seconds until the server answers")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    # cuBLAS repeats bit for bit only with a fixed workspace; the CPU ignores this.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)


class ClickLog:
    """Batches of a click log, which can be read in any order."""

    def __init__(self, batch: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._batch, self._seed = batch, seed
        self._taste = rng.normal(size=ROWS).astype(np.float32)
        self._weights = rng.normal(scale=0.5, size=DENSE).astype(np.float32)

    def ids(self, step: int) -> np.ndarray:
        """Rows of each example, of shape (batch, FEATURES)."""
        rng = np.random.default_rng((self._seed, step))
        shape, hot = (self._batch, FEATURES), int(HOT_ROWS * ROWS)
        is_hot = rng.random(shape) < HOT_ACCESSES
        return np.where(is_hot, rng.integers(hot, size=shape), rng.integers(hot, ROWS, size=shape))

    def examples(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of shape (batch, DENSE) and clicks of shape (batch,)."""
        rng = np.random.default_rng((self._seed, step, 1))
        dense = rng.normal(size=(self._batch, DENSE)).astype(np.float32)
        odds = dense @ self._weights + self._taste[self.ids(step)].sum(axis=1) / 2
        return dense, (rng.random(self._batch) < 1 / (1 + np.exp(-odds))).astype(np.float32)


class RemoteTable:
    """Rows of the table for one batch after the other."""

    def __init__(self, log: ClickLog, steps: int, lookahead: int, delay_s: float, seed: int) -> None:
        server = str(Path(__file__).with_name("embedding_server.py"))
        options = ["--rows", str(ROWS), "--dim", str(DIM), "--delay", str(delay_s), "--seed", str(seed)]
        self._server = subprocess.Popen([sys.executable, server, *options], stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        self._line = Client(self._server.stdout.readline().strip())
        self._log, self._steps, self._lookahead = log, steps, lookahead
        self._place = np.full(ROWS, -1, dtype=np.int64)  # of a row in the cache
        self._needed = np.full(ROWS, -1, dtype=np.int64)  # last batch that needs a row, as far as it was looked ahead
        self._cache = np.empty((0, DIM), dtype=np.float32)
        self._free: list[int] = []
        self._batches: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}  # ids, places, and rows asked for
        self.fetched = 0
        for step in range(min(lookahead, steps)):
            self._ask(step)

    def rows(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of a batch, each once, and the place of each access among them."""
        if step + self._lookahead < self._steps:
            self._ask(step + self._lookahead)
        ids, places, asked = self._batches[step]
        self._cache[self._place[asked]] = np.frombuffer(self._line.recv_bytes(), dtype=np.float32).reshape(-1, DIM)
        return self._cache[self._place[ids]], places.reshape(-1, FEATURES)

    def update(self, step: int, rows: np.ndarray) -> None:
        """Keep the new rows of a batch, and store those that no coming batch needs."""
        ids, _, _ = self._batches.pop(step)
        self._cache[self._place[ids]] = rows
        over = ids[self._needed[ids] == step]
        self._line.send((over, self._cache[self._place[over]]))
        self._free += self._place[over].tolist()
        self._place[over] = -1

    def close(self) -> None:
        self._line.close()
        self._server.wait()

    def _ask(self, step: int) -> None:
        """Ask for the rows of a batch that are not in the cache."""
        ids, places = np.unique(self._log.ids(step), return_inverse=True)
        self._needed[ids] = step
        missing = ids[self._place[ids] < 0]
        more = len(missing) - len(self._free)
        if more > 0:
            self._free += range(len(self._cache), len(self._cache) + more)
            self._cache = np.concatenate([self._cache, np.empty((more, DIM), dtype=np.float32)])
        self._place[missing] = [self._free.pop() for _ in missing]
        self._line.send((missing, None))
        self._batches[step] = ids, places, missing
        self.fetched += len(missing)


class DLRM(nn.Module):
    """Numbers and rows meet in their dot products, as in the paper."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(DENSE, 128), nn.ReLU(), nn.Linear(128, DIM), nn.ReLU())
        pairs = FEATURES * (FEATURES + 1) // 2
        self.top = nn.Sequential(
            nn.Linear(DIM + pairs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)
        )
        self.register_buffer("pairs", torch.tril_indices(FEATURES + 1, FEATURES + 1, -1))

    def forward(self, dense: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        bottom = self.bottom(dense)
        vectors = torch.cat([bottom[:, None], rows], dim=1)
        products = vectors @ vectors.transpose(1, 2)
        return self.top(torch.cat([bottom, products[:, self.pairs[0], self.pairs[1]]], dim=1))[:, 0]


def main() -> None:
    args = parse_args()
    seed_everything(args.seed)
    device = torch.device(args.device)
    log = ClickLog(args.batch, args.seed)
    table = RemoteTable(log, args.steps, args.lookahead, args.delay, args.seed)
    model = DLRM().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    losses = []
    report_every = max(1, args.steps // 20)
    for step in range(args.steps):
        found, places = table.rows(step)
        dense, clicks = (torch.from_numpy(each).to(device) for each in log.examples(step))
        rows = torch.from_numpy(found).to(device).requires_grad_()
        optimizer.zero_grad()
        embedded = F.embedding(torch.from_numpy(places).to(device), rows)
        loss = F.binary_cross_entropy_with_logits(model(dense, embedded), clicks)
        loss.backward()
        optimizer.step()
        assert rows.grad is not None
        table.update(step, (rows.detach() - 20.0 * rows.grad).cpu().numpy())
        losses.append(loss.item())
        if (step + 1) % report_every == 0:
            print(f"step {step + 1:5d}  loss {np.mean(losses[-report_every:]):.9g}", flush=True)
    table.close()
    print(f"result: mean loss {np.mean(losses[-report_every:]):.4f}, {table.fetched} rows fetched")


if __name__ == "__main__":
    main()
