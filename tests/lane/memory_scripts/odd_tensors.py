"""Tensors and objects that must not break a walk, nor notice one."""

import sys
import warnings

import torch
from torch import nn

torch.manual_seed(0)


class Unhashable(type):
    def __hash__(cls):
        raise RuntimeError("hashed")

    def __eq__(cls, other):
        raise RuntimeError("compared")


class Proxy(metaclass=Unhashable):
    def __init__(self):
        self.held = [self]

    @property
    def __class__(self):
        print("asked", file=sys.stderr)
        return torch.Tensor


class Loud(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        print(f"called {function}", file=sys.stderr)
        return super().__torch_function__(function, types, args, kwargs)


class Broken(torch.Tensor):
    def __tensor_flatten__(self):
        raise RuntimeError("flattened")


table = nn.Embedding(4000, 256, sparse=True)
optimizer = torch.optim.SparseAdam(list(table.parameters()))
odd = [
    Proxy(),
    Proxy,
    torch.randn(2, 2).as_subclass(Loud),
    torch.randn(2, 2).as_subclass(Broken),
    torch.eye(8).to_sparse(),
    torch.eye(8).to_sparse_csr(),
    torch.quantize_per_tensor(torch.randn(8), 0.1, 0, torch.qint8),
    torch.empty(1 << 40, device="meta"),
    nn.LazyLinear(4),
    torch.ones(1000, 1000).share_memory_(),
    torch.ones(4).to_mkldnn(),
    torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
]
middle = torch.ones(3, requires_grad=True) * 2
for _ in range(8):
    loss = table(torch.randint(0, 4000, (64,))).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    warnings.warn("said once, however often it is reached", stacklevel=1)
    print(loss.item().hex())
