"""`compare`: policies on many generated traces, on all cores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ecoshare.api.request_values import check_least, silent
from ecoshare.api.simulate_trace import SimulateRequest, checked, simulate, watch_nothing
from ecoshare.errors import UsageError
from ecoshare.simulation.result import ComparedRun, Comparison


def compare(
    request: SimulateRequest,
    seeds: int,
    workers: int | None = None,
    watch: Callable[[int, int], None] = lambda _ended, _all: None,
) -> Comparison:
    """Run each policy of a request on the traces of several seeds, in processes of their own.

    All policies have the same traces. The seeds are that of the request and those that follow it.

    Args:
        request: The simulation; its `note` and `progress` are not used.
        seeds: Number of seeds; 1 for a trace from a file.
        workers: Number of processes; None for all cores.
        watch: Gets the number of simulations that have ended, and that of all.

    Raises:
        UsageError: The request has mistakes, see `simulate`, or a trace from a file has no other seeds.
        InvalidJobFile: See `simulate`.
    """
    from joblib import Parallel, delayed

    check_least("seeds", seeds, 1)
    if request.beside:
        raise UsageError("--beside goes with one trace: it does not go with --compare")
    if request.generate is None and seeds > 1:
        raise UsageError(
            f"--compare {seeds}: a trace from a file has no seeds", "--compare 1 runs its policies beside each other"
        )
    scenario = checked(request)  # now: a mistake is told once, and not by each process
    plain = replace(request, note=silent, progress=watch_nothing)
    numbers = range(request.seed, request.seed + seeds)
    # The slowest policies are often the last ones, so all policies of a seed come together.
    tasks = [(policy, seed) for seed in numbers for policy in scenario.policies]
    run = Parallel(n_jobs=workers or -1, return_as="generator_unordered")
    found: dict[tuple[str, int], ComparedRun] = {}
    for each in run(delayed(_one)(plain, *task) for task in tasks):
        found[each.policy, each.seed] = each
        watch(len(found), len(tasks))
    runs = tuple(found[policy, seed] for policy in scenario.policies for seed in numbers)
    return Comparison(scenario.policies, tuple(numbers), runs, scenario.power.words)


def _one(request: SimulateRequest, policy: str, seed: int) -> ComparedRun:
    """Simulation of one policy on one trace, in a process of its own."""
    policies = None if request.objective is not None else (policy,)
    result = simulate(replace(request, policies=policies, seed=seed))
    return ComparedRun(policy, seed, result.results[0].as_dict(), result.walls_s[0])
