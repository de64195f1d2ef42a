"""Calls torch's vector functions of MKL once, before threads can.

MKL chooses the kernel of a function at its first call in a process. In 2024.2, which torch's wheels have, that is not
safe where two threads make this call at once: one of them may compute its half of the tensor with a kernel of 11 bits
(https://github.com/pytorch/pytorch/issues/188792). A script whose first `sqrt`, which is Adam's, is large enough for
two threads then prints other losses about once in a hundred runs, alone as well as shared (docs/decisions/0021).
"""

from __future__ import annotations

import torch

FUNCTIONS = (
    *("abs", "acos", "asin", "atan", "cos", "cosh", "erf", "erfc", "exp", "expm1", "log", "log10", "log1p", "log2"),
    *("logit", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
)
"""What torch hands to MKL's vector mathematics (`aten/src/ATen/cpu/vml.h`), by its names in `torch`."""


def call_once() -> None:
    """Let MKL choose the kernels, in this thread alone.

    On one element each: no thread is started, and no random number drawn. 1.6 ms in a process that was just forked.
    """
    for dtype in (torch.float32, torch.float64):
        one = torch.full((1,), 0.5, dtype=dtype, device="cpu")
        for name in FUNCTIONS:
            getattr(torch, name)(one)
