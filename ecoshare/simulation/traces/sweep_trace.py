"""Generated hyper-parameter search: trials of one class that arrive at once, most of which end early.

::

    rung 0   ████ ████ ████ ████ ████ ████ ████ ████ ████     9 trials, a minute each
    rung 1   ████████ ████████ ████████                       the best third goes on to 3 minutes
    rung 2   ████████████████                                 the best third of these goes on to 9 minutes

Source: successive halving, Jamieson and Talwalkar, AISTATS 2016, with the factor of 3 of Li et al., "Hyperband", JMLR
2018. Times and memory are invented round numbers; only the shape matters.
"""

from __future__ import annotations

import numpy as np

from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob
from ecoshare.values.class_profile import MemoryDemand

FACTOR = 3
FIRST_ITERATIONS = 600
ITERATION_S = 0.1
MEMORY = MemoryDemand(1 << 30, 2 << 30)

_NOTE = (
    "trials of one class by successive halving, the best third of each rung going on to three times its length; which"
    " are the best is drawn, and a trial's whole length is known from its start; iterations of 0.1 s, 1 GiB kept and 2"
    " GiB ephemeral are invented"
)


def generate(jobs: int, seed: int) -> Trace:
    """Trace of `jobs` trials of one GPU each, all of which arrive at time 0."""
    rungs = [0] * jobs
    order = np.random.default_rng(seed).permutation(jobs)
    left = jobs
    while left >= FACTOR:
        left //= FACTOR
        for place in order[:left]:
            rungs[place] += 1
    made = tuple(
        TraceJob(f"trial-{number}", "sweep", 0.0, (Phase(FIRST_ITERATIONS * FACTOR**rung, ITERATION_S),), memory=MEMORY)
        for number, rung in enumerate(rungs)
    )
    return Trace(f"sweep, seed {seed}", "generated", made, _NOTE)
