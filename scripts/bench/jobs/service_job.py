"""Service of bench_services.py: a small model that answers numbered requests, in a run or as a plain process.

    wait for the file `go` ──► serve all requests ──► write NAME.json ──► wait for `done`

With --thread, it shares its process with other services, and does not wait. With --time, it prints the processor time
(s) of a request of each model instead.
"""

import argparse
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch
from torch import nn

import ecoshare
from ecoshare.base.service import RequestSource, ServiceSpec

INPUTS = 64
"""Different requests; their numbers repeat."""


class Words(nn.Module):
    """Tiny transformer from 32 word numbers to 8 logits."""

    def __init__(self) -> None:
        super().__init__()
        self.word = nn.Embedding(100, 64)
        layers = [nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True) for _ in range(2)]
        self.layers, self.label = nn.Sequential(*layers), nn.Linear(64, 8)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.label(self.layers(self.word(words)).mean(dim=1))
        return found


def made(kind: str) -> tuple[nn.Module, torch.Tensor]:
    """Model, and the inputs of its requests."""
    torch.manual_seed(0)
    if kind == "mlp":
        widths = (256, 1024, 1024, 1024, 8)
        linear = [part for pair in pairwise(widths) for part in (nn.Linear(*pair), nn.ReLU())]
        return nn.Sequential(*linear[:-1]), torch.randn(INPUTS, 256)
    if kind == "cnn":
        convolutions = [nn.Conv2d(*each, 3, padding=1) for each in ((3, 32), (32, 64), (64, 64))]
        layers = [part for each in convolutions for part in (each, nn.ReLU(), nn.MaxPool2d(2))]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 16, 8)), torch.randn(INPUTS, 3, 32, 32)
    return Words(), torch.randint(0, 100, (INPUTS, 32))


def handler_of(kind: str, device: str, answers: dict[int, set[str]]) -> Callable[[list[int]], list[int]]:
    """Handler that keeps what it answers to requests that come alone: other batch sizes have other last digits."""
    model, inputs = made(kind)
    model, inputs = model.to(device).eval(), inputs.to(device)

    def handler(numbers: list[int]) -> list[int]:
        with torch.inference_mode():
            logits = model(inputs[[number % INPUTS for number in numbers]])
        labels: list[int] = logits.argmax(dim=1).tolist()
        if len(numbers) == 1:
            answers[numbers[0] % INPUTS].add(logits.double().sum().item().hex())
        return labels

    for number in range(10):
        handler([number])
    answers.clear()
    return handler


def request_s(kind: str, device: str) -> float:
    """Median processor time (s) of a request, with its way through the queue of the service.

    Something else uses the caches of the processor before each request, as the other services do.
    """
    times_s, others = [], torch.zeros(16 << 20)
    with ecoshare.serve(handler_of(kind, device, defaultdict(set)), batch=1, p99=None) as server:
        for number in range(100):
            others.add_(1.0)
            from_s = time.process_time()
            server.submit(number).result()
            times_s.append(time.process_time() - from_s)
    return median(times_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", nargs="*", help="mlp, cnn or transformer")
    parser.add_argument("--name", default="service")
    parser.add_argument("--folder", type=Path, default=Path())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--arrivals", default="", help="times of the requests of a plain process, one a line")
    parser.add_argument("--p99-s", type=float, default=0.05)
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    parser.add_argument("--processor", type=int, help="the only one that serves")
    parser.add_argument("--thread", action="store_true", help="wait for no file: it would do so with the turn")
    parser.add_argument("--time", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.time:
        print(json.dumps({kind: request_s(kind, args.device) for kind in args.kind}))
        return
    answers: dict[int, set[str]] = defaultdict(set)
    if args.arrivals:  # the runner of a job does the same, and gives a turn
        ecoshare._service = ServiceSpec(args.p99_s, tuple(args.batch), requests=RequestSource(args.arrivals))
        ecoshare._requests_path = str(args.folder / f"{args.name}.jsonl")
    handler = handler_of(args.kind[0], args.device, answers)
    server = ecoshare.serve(handler, batch=args.batch, p99=args.p99_s)
    if args.processor is not None:
        os.sched_setaffinity(0, {args.processor})  # threads that start from now on have it, too
    (args.folder / f"{args.name}.ready").touch()
    while not args.thread and not (args.folder / "go").exists():
        time.sleep(0.02)
    from_s, from_processor_s = time.monotonic(), time.process_time()
    server.run()
    found = {
        "from_s": from_s,
        "to_s": time.monotonic(),
        "processor_s": time.process_time() - from_processor_s,
        "answers": {number: sorted(each) for number, each in sorted(answers.items())},
    }
    path = args.folder / f"{args.name}.json"
    path.with_suffix(".new").write_text(json.dumps(found))
    path.with_suffix(".new").rename(path)
    while not args.thread and not (args.folder / "done").exists():  # the end of a process would delay other answers
        time.sleep(0.02)


if __name__ == "__main__":
    main()
