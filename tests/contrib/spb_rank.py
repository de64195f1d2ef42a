"""One rank that trains with partial backpropagation, and prints what its test compares."""

from __future__ import annotations

import hashlib
import os

import torch
import torch.distributed as dist
from torch import nn

from ecoshare.contrib.spb import layers_within, partial

STEPS = 7


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [each for _ in range(4) for each in (nn.Linear(6, 6), nn.Tanh())]
    layers[0].requires_grad_(False)  # a layer that the user has frozen is none
    return nn.Sequential(*layers, nn.Linear(6, 2))


def loss_of(model: nn.Module, rank: int, step: int) -> torch.Tensor:
    examples = torch.randn(5, 6, generator=torch.Generator().manual_seed(100 * step + rank))
    loss: torch.Tensor = model(examples).square().mean()
    return loss


def expected(model: nn.Sequential, ranks: int, step: int) -> list[torch.Tensor]:
    """Average of each gradient of full backward passes over the ranks that reach its layer."""
    layers = [each for each in model if isinstance(each, nn.Linear)][1:]
    sums = [[torch.zeros_like(weight) for weight in layer.parameters()] for layer in layers]
    counts = [0] * len(layers)
    for rank in range(ranks):
        weights = [weight for layer in layers for weight in layer.parameters()]
        found = iter(torch.autograd.grad(loss_of(model, rank, step), weights))
        for place, layer in enumerate(layers):
            grads = [next(found) for _ in layer.parameters()]
            if place >= len(layers) - layers_within(len(layers), rank, ranks, step):
                counts[place] += 1
                sums[place] = [total + grad for total, grad in zip(sums[place], grads, strict=True)]
    return [total / count for of, count in zip(sums, counts, strict=True) for total in of]


def main() -> None:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    model = make_model()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.05)
    right = True
    for step in range(STEPS):
        wanted = expected(model, ranks, step)
        optimizer.zero_grad()
        with partial(model, rank, ranks, step):
            torch.autograd.backward(loss_of(model, rank, step))
            reached = sum(weight.grad is not None for weight in trained)
        right &= reached == 2 * layers_within(4, rank, ranks, step)
        right &= all(torch.allclose(weight.grad, each) for weight, each in zip(trained, wanted, strict=True))  # type: ignore[arg-type]
        optimizer.step()
    right &= [weight.requires_grad for weight in model.parameters()].count(True) == len(trained)
    digest = hashlib.sha256()
    states = [each for weight in trained for each in (weight, *optimizer.state[weight].values())]
    for tensor in states:
        digest.update(tensor.detach().numpy().tobytes())
    print(right, digest.hexdigest(), flush=True)
    dist.barrier()
    os._exit(0)  # PyTorch may abort a process of gloo that ends (its pull request 179291)


if __name__ == "__main__":
    main()
