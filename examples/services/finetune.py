"""Fine-tune the transformer of reviews.py on reviews that are made on the spot."""

import argparse
import random

import torch
import torch.nn.functional as F
from reviews import base_model, encoded, review


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.set_num_threads(1)  # more gain nothing for so small a model
    draws = random.Random(args.seed)
    model = base_model().to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    def batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
        texts, labels = zip(*(review(draws) for _ in range(size)), strict=True)
        words = torch.tensor([encoded(text) for text in texts], device=args.device)
        return words, torch.tensor(labels, device=args.device)

    for step in range(1, args.steps + 1):
        words, labels = batch(args.batch_size)
        loss = F.cross_entropy(model(words), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, args.steps // 10) == 0:
            print(f"step {step:5d}  loss {loss.item():.9g}", flush=True)

    model.eval()
    words, labels = batch(1000)
    with torch.no_grad():
        right = (model(words).argmax(dim=1) == labels).float().mean().item()
    print(f"result: {right:.1%} of new reviews read right after {args.steps} steps")


if __name__ == "__main__":
    main()
