"""Classify the nodes of a citation-like graph with a graph convolutional network (Kipf and Welling, 2017).

The graph is made up: 1,800 papers in six fields cite mostly their own field, and their words say a
little about it. Only twenty papers a field are labelled; the edges have to carry the labels on.
"""

import argparse
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 6
NODES = 1800
WORDS = 300
LABELLED_PER_CLASS = 20


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    # cuBLAS repeats bit for bit only with a fixed workspace; the CPU ignores this.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)


def make_graph(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Share of each word in each paper (NODES, WORDS), normalised adjacency (NODES, NODES) and fields (NODES,)."""
    rng = np.random.default_rng(seed)
    fields = rng.integers(CLASSES, size=NODES)

    # About six neighbours in the own field and three elsewhere.
    same_field = fields[:, None] == fields[None, :]
    probability = np.where(same_field, 6 * CLASSES / NODES, 3.6 / NODES)
    upper = np.triu(rng.random((NODES, NODES)) < probability, k=1)
    adjacency = (upper | upper.T | np.eye(NODES, dtype=bool)).astype(np.float32)
    scale = 1 / np.sqrt(adjacency.sum(axis=1))
    adjacency *= scale[:, None] * scale[None, :]

    # A field uses a tenth of the words twice as often as the others do.
    frequency = np.where(rng.random((CLASSES, WORDS)) < 0.1, 0.08, 0.04)
    words = (rng.random((NODES, WORDS)) < frequency[fields]).astype(np.float32)
    words /= np.maximum(words.sum(axis=1, keepdims=True), 1)
    return torch.from_numpy(words), torch.from_numpy(adjacency), torch.from_numpy(fields)


class GCN(nn.Module):
    def __init__(self, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, hidden)
        self.second = nn.Linear(hidden, classes)

    def forward(self, words: torch.Tensor, adjacency: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(adjacency @ self.first(F.dropout(words, 0.5, self.training)))
        return adjacency @ self.second(F.dropout(hidden, 0.5, self.training))


def main() -> None:
    args = parse_args()
    seed_everything(args.seed)
    device = torch.device(args.device)

    words, adjacency, fields = (tensor.to(device) for tensor in make_graph(args.seed))
    labelled = torch.cat([(fields == c).nonzero()[:LABELLED_PER_CLASS, 0] for c in range(CLASSES)])
    unlabelled = torch.ones(NODES, dtype=torch.bool, device=device)
    unlabelled[labelled] = False
    valid = unlabelled.nonzero()[:400, 0]
    test = unlabelled.nonzero()[400:, 0]

    model = GCN(WORDS, args.hidden, CLASSES).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=5e-4)

    def accuracy(logits: torch.Tensor, nodes: torch.Tensor) -> float:
        return (logits[nodes].argmax(dim=1) == fields[nodes]).float().mean().item()

    best_valid, test_at_best = 0.0, 0.0
    report_every = max(1, args.epochs // 20)
    for epoch in range(1, args.epochs + 1):
        model.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(words, adjacency)[labelled], fields[labelled])
        loss.backward()
        optimizer.step()

        if epoch % report_every == 0 or epoch == args.epochs:
            model.eval()
            with torch.no_grad():
                logits = model(words, adjacency)
                valid_loss = F.cross_entropy(logits[valid], fields[valid])
            valid_accuracy = accuracy(logits, valid)
            if valid_accuracy > best_valid:
                best_valid, test_at_best = valid_accuracy, accuracy(logits, test)
            print(
                f"epoch {epoch:4d}  train loss {loss.item():.9g}  valid loss {valid_loss.item():.9g}  "
                f"valid accuracy {valid_accuracy:.4f}",
                flush=True,
            )
    print(f"result: test accuracy {test_at_best:.4f} at the best validation accuracy {best_valid:.4f}")


if __name__ == "__main__":
    main()
