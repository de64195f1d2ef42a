"""Reviews of meals, made of a small grammar, and a small transformer that says whether their writers were pleased."""

import random

import torch
from torch import nn

THINGS = ["soup", "bread", "fish", "tea", "cake", "service"]
GOOD = ["good", "fresh", "warm", "excellent"]
BAD = ["bad", "stale", "cold", "awful"]
WORDS = ["", "the", "was", "not", "very", "and", *THINGS, *GOOD, *BAD]  # the first one fills the end of a review
NUMBER = {word: number for number, word in enumerate(WORDS)}
LABELS = ["displeased", "pleased"]
LENGTH = 24
"""Most words of a review that the model reads."""


def review(draws: random.Random) -> tuple[str, int]:
    """Review of three things, and its label: the opinion on most of them."""
    clauses, pleased = [], 0
    for thing in draws.sample(THINGS, 3):
        is_good, is_negated = draws.random() < 0.5, draws.random() < 0.3
        words = ["the", thing, "was", *["not"] * is_negated, *["very"] * (draws.random() < 0.3)]
        clauses.append(" ".join([*words, draws.choice(GOOD if is_good else BAD)]))
        pleased += is_good != is_negated
    return " and ".join(clauses), int(pleased > 1)


def encoded(text: str) -> list[int]:
    """Numbers of the words of a review. Words that the model does not know are left out."""
    numbers = [NUMBER[word] for word in text.split() if word in NUMBER][:LENGTH]
    return numbers + [0] * (LENGTH - len(numbers))


class Reader(nn.Module):
    """Transformer from word numbers (batch, LENGTH) to the logits of the labels (batch, 2)."""

    def __init__(self, width: int = 64, heads: int = 4, depth: int = 2) -> None:
        super().__init__()
        self.word = nn.Embedding(len(WORDS), width)
        self.position = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        self.layers = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
                for _ in range(depth)
            )
        )
        self.label = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, len(LABELS)))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.label(self.layers(self.word(words) + self.position).mean(dim=1))


def base_model() -> Reader:
    """Model that is served, and from which the fine-tuning starts.

    Its weights are drawn, so that nothing is downloaded. Its answers mean nothing, but take as long as those that do.
    """
    torch.manual_seed(0)
    return Reader()
