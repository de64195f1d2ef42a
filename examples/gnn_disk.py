"""Classify the nodes of a graph of which the features are on the disk, larger than the memory that they may take.

As in Marius++ (Waleffe et al., "MariusGNN", 2023): the nodes are cut into partitions, a buffer holds some of them, and
an epoch visits each pair of partitions once, in an order in which one partition comes and one goes at a time. Batches
sample neighbours among the partitions in the buffer (GraphSAGE: Hamilton et al., 2017). The file is made once.
"""

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

PARTITIONS, BUFFER = 16, 4
CLASSES, DIM, DEGREE = 8, 128, 10


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=800_000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--batches", type=int, default=3, help="batches after each partition that is read")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the file is")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    # cuBLAS repeats bit for bit only with a fixed workspace; the CPU ignores this.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)


def classes_of(nodes: int, seed: int) -> np.ndarray:
    return np.random.default_rng((seed, 1)).integers(CLASSES, size=nodes)


def make_features(path: Path, nodes: int, seed: int) -> None:
    """Write noisy features of all nodes, one partition after the other; float32 of shape (nodes, DIM)."""
    classes = classes_of(nodes, seed)
    centres = np.random.default_rng((seed, 2)).normal(size=(CLASSES, DIM)).astype(np.float32)
    made = path.with_suffix(f".{os.getpid()}")
    with made.open("wb") as file:
        for part in range(PARTITIONS):
            rng = np.random.default_rng((seed, 3, part))
            own = classes[members(part, nodes)]
            file.write((0.1 * centres[own] + rng.normal(size=(len(own), DIM))).astype(np.float32).tobytes())
    made.replace(path)


def members(part: int, nodes: int) -> slice:
    return slice(part * nodes // PARTITIONS, (part + 1) * nodes // PARTITIONS)


def order(rng: np.random.Generator) -> list[tuple[int, int | None]]:
    """Partitions that come, each with the one that goes for it, until every two were in the buffer together.

    The next is always the one that meets the most new partitions, so few are read more often than they must be.
    """
    parts = rng.permutation(PARTITIONS).tolist()
    buffer, met, steps = list[int](), set[frozenset[int]](), list[tuple[int, int | None]]()
    while len(met) < PARTITIONS * (PARTITIONS - 1) // 2:
        found = [
            (comes, goes, {frozenset((comes, each)) for each in buffer if each != goes} - met)
            for comes in parts
            if comes not in buffer
            for goes in (buffer if len(buffer) == BUFFER else [None])
        ]
        comes, goes, new = max(found, key=lambda each: len(each[2]))
        buffer = [*(each for each in buffer if each != goes), comes]
        met |= new
        steps.append((comes, goes))
    return steps


class Buffer:
    """Partitions in memory; the features of each are read from the file when it comes."""

    def __init__(self, path: Path, nodes: int) -> None:
        self._path, self._nodes = path, nodes
        self._parts: dict[int, np.ndarray] = {}

    def change(self, comes: int, goes: int | None) -> None:
        if goes is not None:
            self._parts.pop(goes, None)
        mapped = np.memmap(self._path, dtype=np.float32, mode="r", shape=(self._nodes, DIM))
        self._parts[comes] = np.array(mapped[members(comes, self._nodes)])
        with self._path.open("rb") as file:  # other programs keep their files in the cache of the kernel
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    @property
    def parts(self) -> list[int]:
        return list(self._parts)

    def features(self, nodes: np.ndarray) -> np.ndarray:
        """Features of nodes that are in the buffer."""
        found = np.empty((len(nodes), DIM), dtype=np.float32)
        of = np.searchsorted([members(part, self._nodes).stop for part in range(PARTITIONS)], nodes, side="right")
        for part, own in self._parts.items():
            found[of == part] = own[nodes[of == part] - members(part, self._nodes).start]
        return found


class GraphSage(nn.Module):
    def __init__(self, hidden: int = 128) -> None:
        super().__init__()
        self.own, self.near = nn.Linear(DIM, hidden), nn.Linear(DIM, hidden)
        self.last = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES))

    def forward(self, own: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
        """Logits from features of nodes (batch, DIM) and of their neighbours (batch, DEGREE, DIM)."""
        return self.last(self.own(own) + self.near(near.mean(dim=1)))


def sample(
    parts: list[int], classes: np.ndarray, batch: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of the buffer, and DEGREE neighbours of each there: three of four are of its class."""
    nodes = np.concatenate([np.arange(len(classes))[members(part, len(classes))] for part in parts])
    chosen = rng.choice(nodes, batch)
    near = rng.choice(nodes, (batch, DEGREE))
    is_alike = rng.random((batch, DEGREE)) < 0.75
    for each in range(CLASSES):
        alike = nodes[classes[nodes] == each]
        mine = is_alike & (classes[chosen] == each)[:, None]
        near[mine] = rng.choice(alike, int(mine.sum()))
    return chosen, near


def main() -> None:
    args = parse_args()
    seed_everything(args.seed)
    device = torch.device(args.device)
    path = args.folder / f"gnn-disk-{args.nodes}-{args.seed}.f32"
    if not path.exists():
        make_features(path, args.nodes, args.seed)
    classes = classes_of(args.nodes, args.seed)
    model = GraphSage().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(1, args.epochs + 1):
        rng = np.random.default_rng((args.seed, 4, epoch))
        buffer, losses, hits = Buffer(path, args.nodes), [], []
        for comes, goes in order(rng):
            buffer.change(comes, goes)
            for _ in range(args.batches):
                nodes, near = sample(buffer.parts, classes, args.batch, rng)
                own = torch.from_numpy(buffer.features(nodes)).to(device)
                around = torch.from_numpy(buffer.features(near.reshape(-1)).reshape(*near.shape, DIM)).to(device)
                wanted = torch.from_numpy(classes[nodes]).to(device)
                optimizer.zero_grad()
                logits = model(own, around)
                loss = F.cross_entropy(logits, wanted)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                hits.append((logits.argmax(dim=1) == wanted).float().mean().item())
        tenth = max(1, len(hits) // 10)
        print(f"epoch {epoch:3d}  loss {np.mean(losses):.9g}  last accuracy {np.mean(hits[-tenth:]):.4f}", flush=True)
    print(f"result: accuracy {np.mean(hits[-tenth:]):.4f}")


if __name__ == "__main__":
    main()
