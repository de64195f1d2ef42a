"""Tells whether a backward pass has reached a parameter of a module, from the graph that the pass went through.

::

    loss ──► SmoothL1LossBackward ──► AddmmBackward ──► AccumulateGrad: a parameter, found
                                          │
                                          └──► ... the rest of the graph is not visited

The walk follows the edges of the graph, which stay when a pass has freed the tensors that the graph saved. It begins at
the loss, and the last layer of a model is a few nodes away. It leaves nothing behind: no hook, no node, no reference.
Gradients are not looked at, because scripts set, zero and replace them at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

_MOST_NODES = 1000
"""Most nodes that one walk visits. Only a walk through large frozen models needs more."""


def reaches_parameter(outputs: Sequence[Any], inputs: Sequence[Any]) -> bool:
    """Whether a backward pass from `outputs` has computed the gradient of a parameter.

    Args:
        outputs: Tensors, or edges of the graph, at which the pass began.
        inputs: Tensors, or edges, for which alone gradients were computed; empty for all leaves of the graph.

    Returns:
        True if a `torch.nn.Parameter` was among those. A parameter behind `_MOST_NODES` other nodes is not found.
    """
    if inputs:
        return any(isinstance(each, nn.Parameter) or _holds_parameter(getattr(each, "node", None)) for each in inputs)
    # Modes that the script has entered, and functions that tensors override, would see each `grad_fn` that is read.
    with torch._C.DisableTorchFunction():
        nodes = [each.grad_fn if isinstance(each, torch.Tensor) else each.node for each in outputs]
    seen: set[int] = set()
    for node in nodes:  # grows while it is read: nearer nodes come first, and none is freed, so no id is used again
        if node is None or id(node) in seen:
            continue
        if len(seen) == _MOST_NODES:
            break
        seen.add(id(node))
        edges = node.next_functions
        if not edges and _holds_parameter(node):
            return True
        nodes.extend([edge[0] for edge in edges])
    return False


def _holds_parameter(node: Any) -> bool:
    """Whether a node accumulates the gradient of a parameter. Only such nodes have a `variable`."""
    variable = getattr(node, "variable", None)
    return type(variable) is nn.Parameter or isinstance(variable, nn.Parameter)  # the latter runs Python code
