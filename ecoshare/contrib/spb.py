"""Structured partial backpropagation: each rank of a gang propagates back through a part of the layers only.

::

    step      layers, input to output   rank 0      rank 1      rank 2      rank 3
      0       ┆ 1 ┆ 2 ┆ 3 ┆ 4 ┆               ■           ■■         ■■■        ■■■■       depth 1, 2, 3, 4
      1                                       ■■         ■■■        ■■■■           ■       depth 2, 3, 4, 1

One rank of each step propagates back through all layers. Each gradient is averaged over the ranks that have it, and
all ranks get the average, so all take the same optimizer step. Losses and weights differ from those of full
backpropagation: the early layers see fewer examples a step.

Source: Kumar, Subramanian, Venkataraman and Akella, "Doing More by Doing Less: How Structured Partial Backpropagation
Improves Deep Learning Clusters", DistributedML 2021 (arXiv 2111.10672).

So the iterations of a gang differ in length from rank to rank. In runs of ecoshare with several lanes, each iteration
has its device to itself from the call of the model to the average. Gangs beside each other on the same devices
then take turns by iterations, and a rank that waits for its gang leaves its device to another one (policy `jigsaw`).

It works in any processes of `torch.distributed`, with or without ecoshare::

    for step, (batch, labels) in enumerate(loader):
        optimizer.zero_grad()
        with partial(model, rank, ranks, step):
            F.cross_entropy(model(batch), labels).backward()
        optimizer.step()
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

import torch
from torch import distributed, nn

from ecoshare.base.disk import locked_alone


def depth(rank: int, ranks: int, step: int) -> int:
    """Number of groups of layers, of `ranks` in all, through which a rank propagates back in a step: 1 to `ranks`."""
    return (rank + step) % ranks + 1


def layers_within(layers: int, rank: int, ranks: int, step: int) -> int:
    """Number of layers, counted from the output, through which a rank propagates back in a step: at least 1."""
    return -(-layers * depth(rank, ranks, step) // ranks)


@contextmanager
def partial(model: nn.Module, rank: int, ranks: int, step: int) -> Iterator[None]:
    """Limit the backward passes of a block to the layers that this rank has in this step, then average the gradients.

    Layers are the modules with parameters of their own, in the order in which the model registered them, which should
    be the order of the forward pass. Layers outside the depth of the rank need no gradients inside the block, so the
    backward pass ends before them. Forward and backward pass both belong into the block.

    At its end each gradient is the average over the ranks that computed it, the same bits on all ranks. The rank with
    full depth gets the sums from the others and broadcasts the averages. A rank without a gradient for a parameter
    within its depth counts as zero. Buffers, such as the statistics of batch normalisation, stay those of each rank.
    Ranks must exchange no messages inside the block: in a run, the other one may wait for its device meanwhile.

    Args:
        model: The bare model, with equal weights on all ranks. Several models of one step: a block for each.
        rank: Number of this rank, from 0.
        ranks: Number of ranks. With 1, each step is one of full backpropagation.
        step: Number of the optimizer step, the same on all ranks. With it the depths go round.

    Raises:
        ValueError: A number is out of range, or differs from those of the process group; the model is wrapped by
            `DistributedDataParallel`, has nothing to train, has gradients already, or exchanges messages
            (`SyncBatchNorm`).
        RuntimeError: There are several ranks and no process group.
    """
    layers = _layers(model, rank, ranks, step)
    own = layers_within(len(layers), rank, ranks, step)
    frozen = [weight for layer in layers[: len(layers) - own] for weight in layer]
    try:
        for weight in frozen:
            weight.requires_grad_(False)
        with _device_to_itself(model, layers[0][0].device):
            yield
    finally:
        for weight in frozen:
            weight.requires_grad_(True)
    if ranks > 1:
        _average(layers, [layers_within(len(layers), each, ranks, step) for each in range(ranks)], rank)


def _layers(model: nn.Module, rank: int, ranks: int, step: int) -> list[list[nn.Parameter]]:
    """Trained parameters of each layer, from the input to the output; a shared one belongs to its first layer."""
    if not 0 <= rank < ranks or step < 0:
        raise ValueError(f"rank {rank} of {ranks} in step {step}: expected 0 <= rank < ranks and a step from 0 on")
    if isinstance(model, nn.parallel.DistributedDataParallel):
        raise ValueError("the model is wrapped by DistributedDataParallel, which averages, too: give `model.module`")
    if ranks > 1:
        if not (distributed.is_available() and distributed.is_initialized()):
            raise RuntimeError("there is no process group: call `torch.distributed.init_process_group` first")
        group = distributed.get_rank(), distributed.get_world_size()
        if group != (rank, ranks):
            raise ValueError(f"rank {rank} of {ranks}: the process group has rank {group[0]} of {group[1]} here")
    if any(isinstance(module, nn.SyncBatchNorm) for module in model.modules()):
        raise ValueError("SyncBatchNorm exchanges messages inside the block: take BatchNorm")
    seen: set[int] = set()
    layers = []
    for module in model.modules():
        own = [each for each in module.parameters(recurse=False) if each.requires_grad and id(each) not in seen]
        seen.update(map(id, own))
        if own:
            layers.append(own)
    if not layers:
        raise ValueError("the model has no parameters to train")
    if any(weight.grad is not None for layer in layers for weight in layer):
        raise ValueError("the model has gradients already: call `optimizer.zero_grad()` before the block")
    return layers


_WITHIN_S, _POLL_S = 5.0, 0.0005
"""Longest wait (s) for a device, since the rank that has it may be parked or cut, and time (s) between two looks."""


@contextmanager
def _device_to_itself(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Keep other ranks that propagate partially off this device, from the call of the model to the end of the block.

    A rank that hands its turn over does so when it calls the model. The hooks of ecoshare come first there, so it has
    no device while it waits for its turn.

    Nothing is kept outside the ranks that ecoshare starts: these alone have a device each. The lock of a process that
    dies is gone with it.
    """
    attempt = f"{os.environ.get('ECOSHARE_JOB')}-{os.environ.get('ECOSHARE_ATTEMPT')}"
    if os.environ.get("TORCHELASTIC_RUN_ID") != attempt:
        yield
        return
    on_cuda = device.type == "cuda"
    name = torch.cuda.get_device_properties(device).uuid if on_cuda else f"cpu{min(os.sched_getaffinity(0))}"
    path = Path(tempfile.gettempdir()) / f"ecoshare-spb-{os.getuid()}-{name}"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def lock(_model: nn.Module, _inputs: object) -> None:
        locked_alone(file, _WITHIN_S, _POLL_S)

    hook = model.register_forward_pre_hook(lock)
    try:
        yield
        if on_cuda:
            torch.cuda.synchronize(device)
    finally:
        hook.remove()
        fcntl.flock(file, fcntl.LOCK_UN)  # a fork of this block would hold it beyond the close
        os.close(file)


def _average(layers: Sequence[Sequence[nn.Parameter]], depths: Sequence[int], rank: int) -> None:
    """Give all ranks the average of each gradient over the ranks that have it.

    ::

        rank of depth 1             ▕■▏ ──┐
        rank of depth 2           ▕■■■▏ ──┤ sums        averages
        rank with all layers  ▕■■■■■■■▏ ◄─┘ ──► ▕■■■■■■■▏ ──► all ranks

    With k ranks and layers of equal size, k (k - 1) / 2 parts of k travel to the sum, and k (k - 1) back. Full
    backpropagation sends k (k - 1) both ways. As long as all ranks hold equal weights, no way sends less.

    Args:
        layers: Parameters of each layer.
        depths: Number of layers, from the last one, of which each rank has gradients.
        rank: Number of this rank.
    """
    root = depths.index(len(layers))
    counts = [sum(depth >= len(layers) - place for depth in depths) for place in range(len(layers))]
    kinds = {(weight.dtype, weight.device): None for layer in layers for weight in layer}
    for kind in kinds:  # one message for each type of numbers
        parts = [[weight for weight in layer if (weight.dtype, weight.device) == kind] for layer in layers]
        starts = list(accumulate((sum(map(torch.numel, part)) for part in parts), initial=0))
        weights = [weight for part in parts for weight in part]
        grads = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights]
        buffer = torch.cat([grad.reshape(-1) for grad in grads])
        for other, theirs in enumerate(depths):
            tail = buffer[starts[len(layers) - theirs] :]
            if other == root or not len(tail):
                continue
            if rank == root:
                received = torch.empty_like(tail)
                distributed.recv(received, src=other)
                tail += received
            elif rank == other:
                distributed.send(tail, dst=root)
        if rank == root:
            for place, count in enumerate(counts):
                buffer[starts[place] : starts[place + 1]] /= count
        distributed.broadcast(buffer, src=root)
        for weight, average in zip(weights, torch.split(buffer, list(map(torch.numel, weights))), strict=True):
            weight.grad = average.view_as(weight)
