"""Train a network to name shapes on two ranks that compress what they exchange: gradients, or activations.

With `--hook`, each rank has the whole model and half of the images, and gradients are averaged by a hook of
DistributedDataParallel. With `--split`, each rank has one half of the model: activations go to rank 1, and their
gradients come back. `--mbit` models a slow link: each exchange takes at least its bytes over the rate. Rank 0 counts
the bytes that it sends, and reports them with the accuracy. Without torchrun, rank 0 starts rank 1.
"""

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import ecoshare
import shapes

HOOKS = ("none", "fp16", "powersgd")
SPLITS = ("whole", "fp16", "topk")
PLAIN_STEPS = 10
"""Steps before PowerSGD begins to compress."""


def parse_args(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--hook", choices=HOOKS, default="none", help="compression of gradients")
    way.add_argument("--split", choices=SPLITS, help="two pipeline stages, and the compression of their activations")
    parser.add_argument("--model", choices=("mlp", "cnn"), default="mlp")
    parser.add_argument("--width", type=int, default=512, help="neurons in each layer of the mlp")
    parser.add_argument("--keep", type=float, default=0.1, help="part of the activations that topk sends")
    parser.add_argument("--rank", type=int, default=2, help="rank of PowerSGD's matrices")
    parser.add_argument("--mbit", type=rate, help="rate of a modelled link in Mbit/s; loopback as it is without")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=64, help="images of a step, on both ranks together")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report-every", type=int, default=20, help="steps between two reports of the accuracy")
    return parser.parse_args(words)


def rate(text: str) -> float:
    if not (value := float(text)) > 0:
        raise ValueError(text)
    return value


class Link:
    """Counts the bytes that this rank sends, and takes the time of a link of `mbit` Mbit/s; None for no time."""

    def __init__(self, mbit: float | None) -> None:
        self.sent_bytes = 0
        self._mbit = mbit
        self._free_s = 0.0

    def ready_s(self, *tensors: Tensor) -> float:
        """Time (s) at which the tensors are over the link. Exchanges go one after the other."""
        size_bytes = sum(tensor.nbytes for tensor in tensors)
        self.sent_bytes += size_bytes
        if self._mbit is None:
            return 0.0
        self._free_s = max(time.monotonic(), self._free_s) + size_bytes * 8 / (self._mbit * 1e6)
        return self._free_s

    def all_reduce(self, tensor: Tensor, *args: object, **options: object) -> "Exchange":
        """`dist.all_reduce` over this link: a ring of two ranks sends each byte of a tensor once."""
        return Exchange(_all_reduce(tensor, *args, **options), self.ready_s(tensor))


class Exchange:
    """Asynchronous work of a collective, which is done once the link has had its time."""

    def __init__(self, work: dist.Work, ready_s: float) -> None:
        self._work, self._ready_s = work, ready_s

    def get_future(self) -> torch.futures.Future:
        ready_s = self._ready_s

        def after(future: torch.futures.Future) -> list[Tensor]:
            wait_until(ready_s)
            return future.value()

        return self._work.get_future().then(after)


_all_reduce = dist.all_reduce


def wait_until(ready_s: float) -> None:
    time.sleep(max(0.0, ready_s - time.monotonic()))


def make_model(kind: str, width: int) -> tuple[nn.Sequential, nn.Sequential]:
    """Both stages of a model."""
    classes = len(shapes.NAMES)
    if kind == "mlp":
        first = nn.Sequential(nn.Flatten(), nn.Linear(shapes.SIZE**2, width), nn.ReLU())
        return first, nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes))
    first = nn.Sequential(nn.Conv2d(1, 16, kernel_size=3, stride=2, padding=1), nn.ReLU())
    return first, nn.Sequential(
        nn.Conv2d(16, 32, kernel_size=3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 5 * 5, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )


def compressed(tensor: Tensor, how: str, keep: float) -> list[Tensor]:
    """Tensors to send in place of one."""
    if how == "topk":
        flat = tensor.flatten()
        places = flat.abs().topk(max(1, int(keep * flat.numel())), sorted=False).indices
        return [flat[places], places.int()]
    return [tensor.half() if how == "fp16" else tensor.contiguous()]


def restored(sent: list[Tensor], like: Tensor) -> Tensor:
    """Tensor of the shape of `like` from those that were sent."""
    if len(sent) == 1:
        return sent[0].to(like.dtype)
    return torch.zeros_like(like).flatten().index_copy(0, sent[1].long(), sent[0]).view_as(like)


def send(tensors: list[Tensor], link: Link) -> None:
    wait_until(link.ready_s(*tensors))
    for tensor in tensors:
        dist.send(tensor, 1 - dist.get_rank())


def receive(like: Tensor, args: argparse.Namespace) -> Tensor:
    parts = [torch.empty_like(part) for part in compressed(like, args.split, args.keep)]
    for part in parts:
        dist.recv(part, 1 - dist.get_rank())
    return restored(parts, like)


Step = Callable[[Tensor, Tensor], None]
Test = Callable[[Tensor, Tensor], list[float]]


def whole_models(args: argparse.Namespace, link: Link) -> tuple[Step, Test]:
    """A step of two ranks with the whole model, and a test of the model."""
    rank = dist.get_rank()
    # One bucket: from several, gloo's threads would start the exchanges of PowerSGD in another order on each rank.
    model = DistributedDataParallel(nn.Sequential(*make_model(args.model, args.width)), bucket_cap_mb=1024)
    if args.hook == "powersgd":
        state = PowerSGDState(None, args.rank, start_powerSGD_iter=PLAIN_STEPS, random_seed=args.seed)
        model.register_comm_hook(state, powerSGD_hook)
    else:
        hooks = {"none": default_hooks.allreduce_hook, "fp16": default_hooks.fp16_compress_hook}
        model.register_comm_hook(None, hooks[args.hook])
    dist.all_reduce = link.all_reduce  # torch's hooks look it up at each call
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    def step(images: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(images[rank::2]), labels[rank::2]).backward()
        optimizer.step()

    def test(images: Tensor, labels: Tensor) -> list[float]:
        return judged(model.module(images), labels) if rank == 0 else []

    return step, test


def stages(args: argparse.Namespace, link: Link) -> tuple[Step, Test]:
    """A step of two ranks with half of the model each, and a test of the model."""
    both = make_model(args.model, args.width)
    rank = dist.get_rank()
    model = both[rank]
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    shape = both[0](torch.zeros(1, 1, shapes.SIZE, shapes.SIZE)).shape[1:]

    def first(images: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad()
        activations = model(images)
        send(compressed(activations.detach(), args.split, args.keep), link)
        activations.backward(receive(activations.detach(), args))
        optimizer.step()

    def second(images: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad()
        activations = receive(torch.empty(len(images), *shape), args).requires_grad_()
        F.cross_entropy(model(activations), labels).backward()
        send(compressed(activations.grad, args.split, args.keep), link)
        optimizer.step()

    def test(images: Tensor, labels: Tensor) -> list[float]:
        found = torch.zeros(2)
        if rank == 0:
            send(compressed(model(images), args.split, args.keep), Link(None))
            dist.recv(found, 1)
        else:
            found = torch.tensor(judged(model(receive(torch.empty(len(images), *shape), args)), labels))
            dist.send(found, 0)
        return found.tolist()

    return (first, second)[rank], test


def judged(scores: Tensor, labels: Tensor) -> list[float]:
    """Accuracy and loss."""
    return [(scores.argmax(dim=1) == labels).float().mean().item(), F.cross_entropy(scores, labels).item()]


def train(args: argparse.Namespace) -> None:
    painter = torch.Generator().manual_seed(args.seed)
    images, labels = shapes.draw(3200, painter, noise=0.3)
    test_images, test_labels = shapes.draw(800, painter, noise=0.3)
    torch.manual_seed(args.seed)
    link = Link(args.mbit)
    step, test = (stages if args.split else whole_models)(args, link)
    order = torch.Generator().manual_seed(args.seed)
    for number in range(1, args.steps + 1):
        batch = torch.randint(len(images), (args.batch_size,), generator=order)  # the same on both ranks
        step(images[batch], labels[batch])
        if number % args.report_every == 0:
            sent_bytes, link.sent_bytes = link.sent_bytes / args.report_every, 0
            with torch.no_grad():
                found = test(test_images, test_labels)
            if dist.get_rank() == 0:
                accuracy, loss = found
                ecoshare.report(accuracy=accuracy, sent_bytes=sent_bytes)
                told = f"accuracy {accuracy:.4f}  test loss {loss:.9g}  {sent_bytes:.0f} bytes a step"
                print(f"step {number:4d}  {told}", flush=True)


def start_other_rank() -> subprocess.Popen:
    """Start rank 1 as torchrun would; this process becomes rank 0."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": "0"}
    return subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": "1"})


def main() -> None:
    args = parse_args()
    other = None if "RANK" in os.environ else start_other_rank()
    torch.set_num_threads(1)  # both ranks may be on one machine
    dist.init_process_group("gloo")
    if dist.get_world_size() != 2:
        raise SystemExit("error: compressed.py takes two ranks")
    if dist.get_rank() == 0:
        link = f"a modelled link of {args.mbit:g} Mbit/s" if args.mbit else "loopback"
        way = f"split, {args.split}" if args.split else f"hook {args.hook}"
        print(f"{args.model}, {way}, {link}", flush=True)
    group = dist.group.WORLD  # the callbacks of PowerSGD hold it, too: gloo's threads must not be the last to let it go
    train(args)  # the model is gone afterwards: one that outlives its group may hang in gloo's destructor
    dist.barrier()
    dist.destroy_process_group()
    if other is not None and other.wait():
        raise SystemExit(other.returncode)
    del group


if __name__ == "__main__":
    main()
