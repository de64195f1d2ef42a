"""Backward passes that reach a parameter of a module, and such that do not."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode

from ecoshare.lane import hooks
from ecoshare.lane.hooks import reaches_parameter


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))


def frozen() -> nn.Sequential:
    return model().requires_grad_(False)


def inputs() -> Tensor:
    return torch.ones(2, 3, requires_grad=True)


def test_a_loss_of_a_model_reaches_it_before_and_after_the_pass() -> None:
    loss = model()(inputs()).sum()
    assert reaches_parameter([loss], ())
    loss.backward()
    assert reaches_parameter([loss], ()), "the graph has freed its tensors, and not its edges"


def test_a_frozen_model_is_not_reached() -> None:
    assert not reaches_parameter([frozen()(inputs()).sum()], ())


def test_a_model_behind_a_frozen_one_is_reached() -> None:
    """If it failed, a generator that trains through a frozen network would have no iterations."""
    assert reaches_parameter([frozen()(nn.Linear(3, 3)(inputs())).sum()], ())


def test_plain_tensors_are_no_parameters() -> None:
    weight = torch.ones(3, requires_grad=True)
    assert not reaches_parameter([(weight * inputs()).sum()], ())


@pytest.mark.parametrize("found", [True, False])
def test_a_pass_for_some_inputs_reaches_those_alone(found: bool) -> None:
    """If it failed, gradients of inputs, as adversarial examples need, would be training."""
    layer, x = nn.Linear(3, 1), inputs()
    loss = layer(x).sum()
    wanted = layer.weight if found else x
    assert reaches_parameter([loss], (wanted,)) is found
    assert reaches_parameter([loss], (x, get_gradient_edge(wanted))) is found


def test_a_pass_may_begin_at_several_tensors_and_edges() -> None:
    trained, other = model()(inputs()).sum(), frozen()(inputs()).sum()
    assert reaches_parameter([other, get_gradient_edge(trained)], ())
    assert not reaches_parameter([other, get_gradient_edge(other)], ())


def test_nodes_with_many_ways_to_them_are_visited_once() -> None:
    """If it failed, the walk would take as many steps as there are ways: 2 to the power of 200 here."""
    x = inputs().sum()
    for _ in range(200):
        x = x * 0.5 + x * 0.5
    assert not reaches_parameter([x], ())


def test_the_walk_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it failed, an endless graph would stop the job at each pass."""
    monkeypatch.setattr(hooks, "_MOST_NODES", 10)
    x = nn.Linear(3, 1)(inputs()).sum()
    for _ in range(20):
        x = x + 1.0
    assert not reaches_parameter([x], ())


def test_nothing_is_kept() -> None:
    """If it failed, graphs and the tensors that they have saved would stay in memory after an iteration."""
    layer = nn.Linear(3, 1)
    x = inputs()
    loss = (layer(x) * 2.0).sum()
    kept = [weakref.ref(each) for each in (loss, layer, layer.weight, x)]
    assert reaches_parameter([loss], ())
    assert not hasattr(layer.weight, "_post_accumulate_grad_hooks") or not layer.weight._post_accumulate_grad_hooks
    assert layer.weight._backward_hooks is None
    del layer, x, loss
    gc.collect()
    assert [each() for each in kept] == [None] * 4


def test_a_mode_of_the_script_sees_nothing() -> None:
    class Seen(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), options: Any = None) -> Any:
            calls.append(function)
            return function(*args, **(options or {}))

    calls: list[Any] = []
    loss = model()(inputs()).sum()
    with Seen():
        assert reaches_parameter([loss], ())
    assert calls == []
