"""Job of bench_turns.py: it trains with the hooks and without them in turn, and prints the median times as JSON.

The hooks report to a counter, so the times show the cost of watching alone. Without them nothing of ecoshare is called.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import optimizer as torch_optimizer

from ecoshare.lane import hooks
from ecoshare.lane.iterations import Boundary

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, required=True)
parser.add_argument("--by-hand", action="store_true", help="no optimizer: backward passes mark the iterations")
parser.add_argument("--blocks", type=int, required=True)
parser.add_argument("--iterations", type=int, required=True, help="iterations of a block")
args = parser.parse_args()


class Counter:
    """Receiver of boundaries that counts them."""

    iterations = 0
    absence_cost_s = 0.0
    cut_hook = None
    is_waited_for = False

    def boundary(self, _kind: Boundary) -> None:
        self.iterations += 1

    def count(self, _kind: Boundary) -> None:
        self.iterations += 1

    def leave(self) -> None: ...

    def take(self) -> None: ...


def trainer() -> Callable[[], None]:
    torch.manual_seed(0)
    blocks = [part for _ in range(args.layers) for part in (nn.Linear(256, 256), nn.ReLU())]
    model = nn.Sequential(*blocks)
    parameters = list(model.parameters())
    x = torch.randn(64, 256)
    optimizer = None if args.by_hand else torch.optim.SGD(parameters, lr=0.01)

    def step() -> None:
        loss = model(x).square().mean()
        model.zero_grad()
        loss.backward()
        if optimizer is not None:
            optimizer.step()
        else:
            for parameter in parameters:
                assert parameter.grad is not None
                parameter.data.add_(parameter.grad, alpha=-0.01)

    return step


autograd: Any = torch.autograd
step_hooks: dict[int, Any] = torch_optimizer._global_optimizer_post_hooks
plain = autograd._engine_run_backward
hooks.install()
watched, our_hooks = autograd._engine_run_backward, dict(step_hooks)
counter = Counter()
step = trainer()
times_s: dict[bool, list[float]] = {False: [], True: []}
for block in range(-2, 2 * args.blocks):
    on = block % 2 == 0
    autograd._engine_run_backward = watched if on else plain
    step_hooks.clear()
    step_hooks.update(our_hooks if on else {})
    watching = hooks.Hooks(counter, accelerator=False)
    if on:
        watching.install()
    for place in range(args.iterations):
        began_s = time.perf_counter()
        step()
        took_s = time.perf_counter() - began_s
        if block >= 0 and place > 0:  # the first block of each kind warms up, and so does the first iteration of any
            times_s[on].append(took_s)
    watching.finish()
assert counter.iterations == (args.blocks + 1) * args.iterations
print(json.dumps({"plain_s": statistics.median(times_s[False]), "watched_s": statistics.median(times_s[True])}))
