"""Confines a job to its partition of the processors, as `taskset` would."""

from __future__ import annotations

import os
from collections.abc import Sequence

_GIVEN = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables by which a user gives torch a number of threads, whatever the number of processors."""


def confine(processors: Sequence[int]) -> None:
    """Keep this process, and all that it starts, on these processors.

    Args:
        processors: Numbers of the processors; none to leave the process as it is.
    """
    if processors:
        os.sched_setaffinity(0, processors)


def match_threads(processors: Sequence[int]) -> None:
    """Give torch the number of threads that it would choose if it were loaded on these processors.

    The warm server has loaded torch on all processors. An interpreter of its own needs no call.

    Args:
        processors: Numbers of the processors; none to leave torch as it is.
    """
    if processors and not any(name in os.environ for name in _GIVEN):
        import torch

        torch.set_num_threads(len(processors))
