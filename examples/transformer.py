"""Train a small causal transformer on data/mill.txt letter by letter, then let it write a few lines."""

import argparse
import math
import os
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

TEXT = Path(__file__).resolve().parent / "data" / "mill.txt"


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=360)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--context", type=int, default=48, help="letters that the model looks back")
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


class Block(nn.Module):
    """Causal self-attention and a feed-forward network, each behind a layer norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.query_key_value(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each (batch, heads, length, width / heads)
        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
        return self.project((weights @ value).transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.norm_attention(x))
        return x + self.feed_forward(x)


class Transformer(nn.Module):
    def __init__(self, letters: int, context: int, width: int = 96, heads: int = 4, depth: int = 2) -> None:
        super().__init__()
        self.context = context
        self.letter = nn.Embedding(letters, width)
        self.position = nn.Embedding(context, width)
        for embedding in (self.letter, self.position):
            nn.init.normal_(embedding.weight, std=0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, letters))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.blocks(self.letter(tokens) + self.position(positions)))

    @torch.no_grad()
    def write(self, tokens: torch.Tensor, count: int, temperature: float = 0.7) -> torch.Tensor:
        """Tokens (1, length), continued by `count` sampled ones."""
        for _ in range(count):
            logits = self(tokens[:, -self.context :])[:, -1]
            following = torch.multinomial((logits / temperature).softmax(dim=-1), num_samples=1)
            tokens = torch.cat([tokens, following], dim=1)
        return tokens


def main() -> None:
    args = parse_args()
    seed_everything(args.seed)
    device = torch.device(args.device)

    text = TEXT.read_text(encoding="utf-8")
    alphabet = sorted(set(text))
    number = {letter: i for i, letter in enumerate(alphabet)}
    tokens = torch.tensor([number[letter] for letter in text])
    train, valid = tokens[: int(0.9 * len(tokens))], tokens[int(0.9 * len(tokens)) :]

    def batch(source: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        starts = torch.randint(len(source) - args.context, (args.batch_size,), generator=generator)
        windows = source[starts[:, None] + torch.arange(args.context + 1)].to(device)
        return windows[:, :-1], windows[:, 1:]

    def loss_of(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())

    model = Transformer(len(alphabet), args.context).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    warmup = max(1, args.steps // 20)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, 1 - 0.9 * step / args.steps)
    )
    shuffle = torch.Generator().manual_seed(args.seed)

    valid_loss = float("nan")
    report_every = max(1, args.steps // 15)
    for step in range(1, args.steps + 1):
        model.train()
        loss = loss_of(*batch(train, shuffle))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        scheduler.step()

        if step % report_every == 0 or step == args.steps:
            model.eval()
            chosen = torch.Generator().manual_seed(1)
            with torch.no_grad():
                losses = [loss_of(*batch(valid, chosen)) for _ in range(4)]
            valid_loss = torch.stack(losses).mean().item()
            print(f"step {step:4d}  train loss {loss.item():.9g}  valid loss {valid_loss:.9g}", flush=True)

    prompt = torch.tensor([[number[letter] for letter in "The miller "]], device=device)
    print("sample:", "".join(alphabet[token] for token in model.write(prompt, 60)[0].tolist()))
    print(f"result: {valid_loss / math.log(2):.4f} bits a letter after {args.steps} steps")


if __name__ == "__main__":
    main()
