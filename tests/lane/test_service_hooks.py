"""Forward calls of a server that knows nothing of ecoshare, in one thread and in several."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from ecoshare.lane.hooks import watch_compiled_calls
from ecoshare.lane.service_job import ServiceHooks


class Turn:
    """Turn that counts, and that several threads may have at once, as that of a service."""

    def __init__(self) -> None:
        self.begun = self.inside = self.most = 0
        self._lock = threading.Lock()

    def begin(self) -> None:
        with self._lock:
            self.begun += 1
            self.inside += 1
            self.most = max(self.most, self.inside)

    def end(self) -> None:
        with self._lock:
            self.inside -= 1


@pytest.fixture
def turn() -> Turn:
    return Turn()


@pytest.fixture
def hooks(turn: Turn) -> Iterator[ServiceHooks]:
    hooks = ServiceHooks(turn)
    hooks.install()
    yield hooks
    assert (turn.inside, hooks._plain, hooks._compiled) == (0, 0, 0), "a thread is still counted"
    for each in hooks._handles:
        each.remove()
    watch_compiled_calls(lambda _module, compiled, args, options: compiled(*args, **options))
    assert not module_hooks._global_forward_pre_hooks


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))


def calls(model: Callable[[Any], Any], count: int) -> None:
    with torch.inference_mode():
        for _ in range(count):
            model(torch.ones(1, 3))


def test_the_turn_is_held_in_root_calls_only(hooks: ServiceHooks, turn: Turn) -> None:
    inner = nn.ReLU()
    model = nn.Sequential(nn.Linear(3, 4), inner)
    held: list[int] = []
    inner.register_forward_hook(lambda *_: held.append(turn.inside))
    calls(model, 3)
    assert (turn.begun, held, turn.inside) == (3, [1, 1, 1], 0)


def test_a_transform_takes_no_turn(hooks: ServiceHooks, turn: Turn) -> None:
    calls(nn.Sequential(nn.ReLU(), nn.Flatten()), 2)
    assert turn.begun == 0


def test_a_call_that_fails_gives_the_turn_up(hooks: ServiceHooks, turn: Turn) -> None:
    model = net()
    with pytest.raises(RuntimeError, match="shapes"):
        model(torch.ones(1, 7))
    model[1].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model(torch.ones(1, 3))
    assert (turn.begun, turn.inside) == (2, 0)
    calls(net(), 1)
    assert turn.begun == 3


def test_calls_of_several_threads_are_counted_one_by_one(hooks: ServiceHooks, turn: Turn) -> None:
    model, meets = net(), threading.Barrier(2)

    def meet(*_: Any) -> None:
        meets.wait(10)

    model[0].register_forward_hook(meet)
    threads = [threading.Thread(target=calls, args=(model, 5)) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(20)
    assert (turn.begun, turn.most, turn.inside) == (10, 2, 0)


def test_what_has_the_turn_calls_modules_without_taking_it(hooks: ServiceHooks, turn: Turn) -> None:
    hooks.hold()
    calls(net(), 2)
    hooks.release()
    assert turn.begun == 0
    calls(net(), 1)
    assert turn.begun == 1


@pytest.mark.slow
@pytest.mark.parametrize("nested", [False, True])
def test_compiled_calls_are_root_calls_and_see_no_hook(hooks: ServiceHooks, turn: Turn, nested: bool) -> None:
    """If it failed, Dynamo would trace the hooks: other graphs, and other code."""
    import torch._dynamo as dynamo
    from torch._dynamo.utils import counters

    def frames() -> tuple[int, dict[str, Any]]:
        dynamo.reset()
        counters.clear()
        model, begun = net(), turn.begun
        if nested:
            model[1] = torch.compile(model[1], backend="eager")  # type: ignore[assignment]
            calls(model, 3)
        else:
            calls(torch.compile(model, backend="eager"), 3)
        return turn.begun - begun, {name: dict(found) for name, found in counters.items()}

    frames()  # the first one of a process compiles and counts more
    begun, watched = frames()
    assert begun == 3
    for each in hooks._handles:
        each.remove()
    watch_compiled_calls(lambda _module, compiled, args, options: compiled(*args, **options))
    assert frames() == (0, watched)
    hooks.install()


@pytest.mark.slow
def test_plain_and_compiled_calls_of_several_threads_end(hooks: ServiceHooks, turn: Turn) -> None:
    """Threads wait for each other, so a mistake there would be a deadlock."""
    plain, mixed = net(), net()
    whole: Any = torch.compile(net(), backend="eager")
    mixed[1] = torch.compile(mixed[1], backend="eager")  # type: ignore[assignment]
    for model in (whole, mixed):
        calls(model, 1)
    before = turn.begun
    threads = [
        threading.Thread(target=calls, args=(model, 200), daemon=True) for model in (plain, mixed, whole, plain, mixed)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert not any(each.is_alive() for each in threads)
    # A plain call that began while a compiled one ran was not seen.
    assert 0 < turn.begun - before <= 1000
