"""`share` lets a trainable of Ray Tune take turns with other trials on the devices of its node."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ray
from ray.tune import Trainable

from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.device import DeviceInfo
from ecoshare.devices import registry
from ecoshare.integrations.ray import ray_trial
from ecoshare.integrations.ray.node_ledger import Wish
from ecoshare.jobs.quantities import parse_size_bytes

Size = str | int


def share(
    trainable: Any,
    *,
    memory: Size | tuple[Size, Size] | None = None,
    budget: Size | None = None,
    device: str | None = None,
) -> Any:
    """Return the same trainable with trials that take turns on a device, as many at once as fit in its memory.

    Ask Ray for no GPU, so that it starts as many trials as it has processors for: `Tuner(share(train), ...)`. Ray shows
    a trial that still waits for room as running. A trial to which Ray gave one GPU shares that GPU. A trial with
    several GPUs does not share them.

    Args:
        trainable: A function of a trial's `config`, a generator, or a subclass of `ray.tune.Trainable`.
        memory: Memory of the device that a trial needs, such as "2 GiB" or 2147483648; or a pair: memory kept between
            iterations, and memory needed beyond that inside one. Without it, the first trial runs alone until its
            memory has been observed for a few iterations; the other trials use that observation.
        budget: Most memory of a device that trials together may use; without it, nearly all free memory.
        device: `cpu`; or None for the node's GPUs, or its processors if it has no GPU.

    Raises:
        TypeError: The trainable or a size is of another type.
        ValueError: A size cannot be read, or the device is not known.
    """
    if device not in (None, "cpu"):
        raise ValueError(f"device={device!r}: expected 'cpu', or None for the GPUs that a node has")
    demand, most_bytes = _demand(memory), None if budget is None else _bytes("budget", budget)
    if demand is not None and most_bytes is not None and demand.peak_bytes > most_bytes:
        raise ValueError(f"memory={memory!r} is more than budget={budget!r}: no trial would ever run")
    # Trials of one call are of one kind on every node. Trials of another call may belong to another program.
    options = (uuid.uuid4().hex, demand, most_bytes, device)
    if inspect.isclass(trainable) and issubclass(trainable, Trainable):
        return _shared_class(trainable, options)
    if inspect.isclass(trainable) or not callable(trainable):
        raise TypeError(f"share() expects a function or a subclass of ray.tune.Trainable, got {trainable!r}")
    return _shared_function(trainable, options)


_Options = tuple[str, MemoryDemand | None, int | None, str | None]


def _shared_function(function: Any, options: _Options) -> Any:
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generate(config: dict[str, Any]) -> Iterator[Any]:
            if (wish := _wish(options)) is None:
                yield from function(config)
                return
            with ray_trial.entered(wish):
                yield from function(config)

        return generate

    @functools.wraps(function)
    def call(config: dict[str, Any]) -> Any:
        if (wish := _wish(options)) is None:
            return function(config)
        with ray_trial.entered(wish) as entered:
            result = function(config)
            entered.rest()
            return {**result, **entered.figures()} if isinstance(result, dict) and result else result

    return call


def _shared_class(trainable: type[Trainable], options: _Options) -> type[Trainable]:
    """Subclass that holds the turn in the methods that may use the device, and gives it up between them."""

    class Shared(trainable):  # type: ignore[misc]
        _ecoshare: ray_trial.RayTrial | None = None
        _ecoshare_inside = False

        def setup(self, config: dict[str, Any], **given: Any) -> None:
            self._enter()
            self._with_turn(super().setup, config, **given)

        def step(self) -> Any:
            result = self._with_turn(super().step)
            if self._ecoshare is None or not isinstance(result, dict):
                return result
            return {**result, **self._ecoshare.figures()}

        def save_checkpoint(self, checkpoint_dir: str) -> Any:
            return self._with_turn(super().save_checkpoint, checkpoint_dir)

        def load_checkpoint(self, checkpoint: Any) -> Any:
            return self._with_turn(super().load_checkpoint, checkpoint)

        def reset_config(self, new_config: dict[str, Any]) -> Any:
            self._end()  # the earlier trial of this process
            self._enter()
            return self._with_turn(super().reset_config, new_config)

        def cleanup(self) -> None:
            try:
                super().cleanup()
            finally:
                self._end()

        def _enter(self) -> None:
            if self._ecoshare is None and (wish := _wish(options)) is not None:
                self._ecoshare = ray_trial.enter(wish)

        def _end(self) -> None:
            if self._ecoshare is not None:
                ray_trial.end(self._ecoshare)
                self._ecoshare = None

        def _with_turn(self, method: Any, *args: Any, **given: Any) -> Any:
            if self._ecoshare is None or self._ecoshare_inside:  # such as `reset_config` that calls `setup`
                return method(*args, **given)
            self._ecoshare.begin()
            self._ecoshare_inside = True
            try:
                return method(*args, **given)
            finally:
                self._ecoshare_inside = False
                self._ecoshare.rest()

    Shared.__name__ = trainable.__name__
    Shared.__qualname__ = trainable.__qualname__
    return Shared


def _wish(options: _Options) -> Wish | None:
    """Request of this worker's trial for a place; None if it has several GPUs, which it does not share.

    Raises:
        UnfitEnvironment: The node has GPUs, and they cannot be shared.
    """
    kind, demand, most_bytes, device = options
    if device == "cpu":
        found = [registry.processors()]
    else:
        assigned = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        if len(assigned) > 1:
            return None
        found = _visible(bool(assigned))
    budgets = {each.uuid or each.name: _budget(each) for each in found}
    return Wish(kind, budgets, demand, most_bytes)


def _visible(assigned: bool) -> list[DeviceInfo]:
    """GPUs that this worker may use, or the processors if there are none.

    Ray hides all GPUs from a worker that asked for none. Such a worker gets the GPUs that were visible when its process
    started, unless the process already uses a GPU.
    """
    torch = sys.modules.get("torch")
    if not assigned and not (torch is not None and torch.cuda.is_initialized()):
        started_with = Path("/proc/self/environ").read_bytes().decode(errors="replace").split("\0")
        given = dict(each.partition("=")[::2] for each in started_with)
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        if "CUDA_VISIBLE_DEVICES" in given:
            os.environ["CUDA_VISIBLE_DEVICES"] = given["CUDA_VISIBLE_DEVICES"]
    names = [f"cuda:{index}" for index in range(len(registry.visible_gpus()))]
    return [registry.find(name) for name in names] or [registry.processors()]


def _budget(device: DeviceInfo) -> Callable[[], int]:
    """Function that returns the memory (bytes) that trials may use on a device at the time of the call."""
    return lambda: registry.find(device.name).memory_bytes


def _demand(memory: Size | tuple[Size, Size] | None) -> MemoryDemand | None:
    if memory is None:
        return None
    if isinstance(memory, tuple):
        if len(memory) != 2:
            raise TypeError(f"memory={memory!r}: expected a size, or a pair of what is kept and what is needed beyond")
        return MemoryDemand(_bytes("memory", memory[0]), _bytes("memory", memory[1]))
    return MemoryDemand(_bytes("memory", memory))


def _bytes(name: str, size: Size) -> int:
    if isinstance(size, str):
        try:
            size = parse_size_bytes(size)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if not isinstance(size, int) or isinstance(size, bool):
        raise TypeError(f"{name}={size!r}: expected a size such as '2 GiB', or a whole number of bytes")
    if size <= 0:
        raise ValueError(f"{name}={size!r}: expected more than nothing")
    return size
