"""`compare`: policies on many generated traces, on all cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from ecoshare.api.request_values import check_least, silent
from ecoshare.api.simulate_trace import SimulateRequest, checked, simulate, watch_nothing
from ecoshare.errors import UsageError


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """Simulation of one policy on the trace of one seed.

    Attributes:
        policy: Name of the policy.
        seed: Seed of the trace.
        figures: Figures of the result, as in `SimulationResult.as_dict`; None for what is not known.
        wall_s: Wall time (s) that the simulation took.
    """

    policy: str
    seed: int
    figures: dict[str, Any]
    wall_s: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Policies on the traces of some seeds.

    Attributes:
        policies: Names of the policies.
        seeds: Seeds of the traces.
        runs: Each policy on each trace: first all seeds of the first policy.
        power: Description of the power that joules are modelled with.
    """

    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    runs: tuple[ComparedRun, ...]
    power: str

    def values(self, policy: str, figure: str) -> list[float] | None:
        """A figure of a policy, seed by seed; None if it is not known of each.

        Args:
            policy: Name of the policy.
            figure: Key of the figure, such as `mean_jct_s`.
        """
        found = [run.figures[figure] for run in self.runs if run.policy == policy]
        return None if any(value is None for value in found) else [float(value) for value in found]

    def ratios(self, policy: str, figure: str) -> list[float] | None:
        """A figure of a policy over that of the first policy on the same trace, seed by seed; None if not known."""
        own, first = self.values(policy, figure), self.values(self.policies[0], figure)
        if own is None or first is None or not all(first):
            return None
        return [value / other for value, other in zip(own, first, strict=True)]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as `ecoshare simulate --compare --json` prints it."""
        return {
            "schema_version": 1,
            "energy_source": "modelled",
            "power": self.power,
            "policies": list(self.policies),
            "seeds": list(self.seeds),
            "runs": [asdict(run) for run in self.runs],
        }


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
    if request.generate is None and seeds > 1:
        raise UsageError(
            f"--compare {seeds}: a trace from a file has no seeds", "--compare 1 runs its policies beside each other"
        )
    scenario = checked(request)  # now: a mistake is told once, and not by each process
    plain = replace(request, note=silent, progress=watch_nothing)
    numbers = range(request.seed, request.seed + seeds)
    tasks = [(policy, seed) for policy in scenario.policies for seed in numbers]
    # The slowest policies are often the last ones, so all policies of a seed come together.
    order = sorted(range(len(tasks)), key=lambda place: tasks[place][1])
    run = Parallel(n_jobs=workers or -1, return_as="generator_unordered")
    found: dict[tuple[str, int], ComparedRun] = {}
    for each in run(delayed(_one)(plain, *tasks[place]) for place in order):
        found[each.policy, each.seed] = each
        watch(len(found), len(tasks))
    runs = tuple(found[task] for task in tasks)
    return Comparison(scenario.policies, tuple(numbers), runs, scenario.power.words)


def _one(request: SimulateRequest, policy: str, seed: int) -> ComparedRun:
    """Simulation of one policy on one trace, in a process of its own."""
    policies = None if request.objective is not None else (policy,)
    result = simulate(replace(request, policies=policies, seed=seed))
    return ComparedRun(policy, seed, result.results[0].as_dict(), result.walls_s[0])


def middle(values: Sequence[float]) -> tuple[float, float, float]:
    """Median of values, and their 10th and 90th percentile."""
    import numpy as np

    low, high = np.quantile(values, (0.1, 0.9))
    return median(values), float(low), float(high)
