"""Generated hyper-parameter searches: their trials arrive, report, pause and end early during the simulation.

::

    halving   all trials at once; at 1, 3, 9, 27 of 81 steps trials wait for each other, and a third goes on
    asha      twice as many trials at once as GPUs; a trial below the best third of a rung ends there
    bohb      brackets of halving, one after the other: many short trials, ... , few long ones
    bohb-parallel  the same brackets, all at once

Each trial reports a learning curve, which falls from 1 to its own limit. The beginning of a curve does not reveal the
limit with certainty. Sources of the schedules: Jamieson and Talwalkar, AISTATS 2016; Li et al., MLSys 2020; Li et
al., "Hyperband", JMLR 2018; Falkner et al., "BOHB", ICML 2018. Better draws from bracket to bracket replace the model
of BOHB. Iteration times differ from trial to trial, since the search covers width and batch size.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob, TraceSweep, TraceTrial
from ecoshare.values.class_profile import MemoryDemand
from ecoshare.values.job_spec import StoppingSpec

KINDS = ("asha", "bohb", "bohb-parallel", "halving")

REDUCTION, STEPS = 3, 81
"""Reduction factor (one trial in three goes on from a rung), and number of steps of a whole trial."""

STEP_ITERATIONS, ITERATION_S = 600, 0.1
SPREAD = 0.5
"""Standard deviation of the logarithm of the iteration time among the trials of a search: a factor of 1.6."""

DOUBLING = 1.8
"""Speed on twice as many GPUs / speed on half of them. Gavel measured 19 models and batch sizes on one and on two V100;
their median is 1.81 (simulation_throughputs.json; Narayanan et al., OSDI 2020)."""

MEMORY = MemoryDemand(1 << 30, 2 << 30)

_NOTE = (
    "learning curves, iterations of about 0.1 s with a spread of 1.6 to 1, 1 GiB kept and 2 GiB ephemeral are invented;"
    " on twice as many GPUs a trial has 1.8 times the speed"
)


def generate(
    kind: str,
    trials: int,
    seed: int,
    gpus: int,
    widest: int = 8,
    doubling: float = DOUBLING,
    spread: float = SPREAD,
) -> Trace:
    """Trace of one search.

    Args:
        kind: One of `KINDS`.
        trials: Number of trials of `halving` and `asha`; of the first bracket of `bohb` and `bohb-parallel`.
        gpus: GPUs of the cluster; `asha` runs up to twice as many trials at once.
        widest: Most GPUs that a trial can use.
        doubling: Speed on twice as many GPUs / speed on half of them; 2 is linear.
        spread: Standard deviation of the logarithm of the iteration time.
    """
    random = np.random.default_rng(seed)
    speedups = tuple(float(wide ** np.log2(doubling)) for wide in range(2, widest + 1))
    if kind == "asha":
        made = _trials("asha", trials, random, speedups, spread)
        sweeps = [TraceSweep("asha", made, 2 * gpus, StoppingSpec("asha", 1, REDUCTION, STEPS))]
    elif kind == "halving":
        made = _trials("halving", trials, random, speedups, spread)
        sweeps = [TraceSweep("halving", made, trials, StoppingSpec("halving", 1, REDUCTION, STEPS))]
    else:
        sweeps = list(_brackets(trials, random, speedups, spread, parallel=kind == "bohb-parallel"))
    return Trace(f"{kind}, seed {seed}", "generated", (), _NOTE, tuple(sweeps))


def _brackets(
    trials: int, random: np.random.Generator, speedups: tuple[float, ...], spread: float, parallel: bool
) -> Iterator[TraceSweep]:
    """Brackets of Hyperband: from many trials that begin with one step to few trials that do all steps."""
    rungs = round(np.log(STEPS) / np.log(REDUCTION))
    before = ""
    for place in range(rungs + 1):
        # Each bracket spends about as many steps as the first: Li et al., JMLR 2018, algorithm 1.
        count = max(1, int(np.ceil((rungs + 1) / (rungs + 1 - place) * trials / REDUCTION**place)))
        name = f"bracket-{place}"
        early_stopping = StoppingSpec("halving", REDUCTION**place, REDUCTION, STEPS)
        made = _trials(name, count, random, speedups, spread, better=place)
        yield TraceSweep(name, made, count, early_stopping, after="" if parallel else before)
        before = name


def _trials(
    sweep: str, count: int, random: np.random.Generator, speedups: tuple[float, ...], spread: float, better: int = 0
) -> tuple[TraceTrial, ...]:
    """Trials with learning curves.

    Args:
        better: Progress of the sampler: the limit of a curve is the best of 1 + `better` draws.
    """
    made = []
    for number in range(count):
        limit = float(random.random(better + 1).min())
        pace = float(random.uniform(0.3, 1.0))
        steps = np.arange(1, STEPS + 1)
        noise = random.normal(0.0, 0.02, STEPS)
        curve = limit + (1.0 - limit) * steps**-pace + noise
        iteration_s = ITERATION_S * float(np.exp(random.normal(0.0, spread)))
        job = TraceJob(
            name=f"{sweep}-{number}",
            job_class=f"{sweep}-{number}",
            arrival_s=0.0,
            phases=(Phase(STEPS * STEP_ITERATIONS, iteration_s),),
            memory=MEMORY,
            speedups=speedups,
        )
        made.append(TraceTrial(job, tuple(float(each) for each in curve)))
    return tuple(made)
