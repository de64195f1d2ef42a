"""Calls torch's vector functions of MKL once, before several threads can.

MKL chooses the kernel of a function at its first call in a process. In MKL 2024.2, which torch's wheels have, that is
not safe if two threads make this call at once: one of them may compute its half of the tensor with a kernel of 11 bits
(https://github.com/pytorch/pytorch/issues/188792). If the first `sqrt` of a script, which is Adam's, is large enough
for two threads, the script prints other losses about once in a hundred runs, alone as well as shared
(docs/decisions/0021).
"""

from __future__ import annotations

import torch

FUNCTIONS = (
    *("abs", "acos", "asin", "atan", "cos", "cosh", "erf", "erfc", "exp", "expm1", "log", "log10", "log1p", "log2"),
    *("logit", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
)
"""Names in `torch` of the functions that torch hands to MKL's vector mathematics (`aten/src/ATen/cpu/vml.h`)."""


def call_once() -> None:
    """Let MKL choose the kernels, in this thread alone.

    Each call has one element, so it starts no thread and draws no random number. All calls take 1.6 ms in a process
    that was just forked.
    """
    for dtype in (torch.float32, torch.float64):
        one = torch.full((1,), 0.5, dtype=dtype, device="cpu")
        for name in FUNCTIONS:
            getattr(torch, name)(one)
