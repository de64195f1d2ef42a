"""Rules of a live chain by their names, and the choice of one by a back test on the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from ecoshare.base.plural import counted
from ecoshare.contrib.chains.allocation_chain import Overlap
from ecoshare.contrib.chains.gradient_boosting import LEAST_SAMPLES, GradientBoosting
from ecoshare.contrib.chains.logs.batch_job import BatchJob
from ecoshare.contrib.chains.provisioner import Provisioner
from ecoshare.contrib.chains.simulated_chain import (
    BackfillQueue,
    ChainResult,
    ChainSpec,
    ChainTotals,
    QueueReplay,
    run_chain,
)
from ecoshare.contrib.chains.wait_predictor import AverageWait, PlannedWait, Reactive, WaitPredictor, logged_samples
from ecoshare.errors import UsageError

MOST_OVERLAP = 0.05
"""Largest part of the time of all chains in which two allocations may be held, if any rule keeps it."""

BOLDNESS = ((0.0, 1), (0.0, 3), (0.05, 3), (0.1, 3), (0.25, 3), (0.5, 3), (0.7, 3), (0.85, 3), (0.92, 3))
"""Margin, as part of the limit, and largest number of successors that wait at once: rules to try, the boldest one last.

Beyond the last margin a chain hops from job to job in an empty cluster, with an overlap of its own each time.
"""


@dataclass(frozen=True, slots=True)
class TriedRule:
    """Rule and what it would have done.

    A prediction of the wait is of a submission now. If the queue grows before the next look, the successor is late,
    however right the prediction was. How much earlier to submit depends on the bursts of the cluster and on what an
    early successor costs: little if it takes over at a checkpoint, its whole overlap if it waits idle.

    So rules are tried on chains in a replay of the log, and the boldest one is taken that keeps a budget of overlap.
    Overlap is alike from week to week. Interruption is not: it comes from few bursts, and the rule with the least of it
    in the past is often only the luckiest one.

    Attributes:
        provisioner: The rule.
        results: Result of each chain.
    """

    provisioner: Provisioner
    results: tuple[ChainResult, ...]

    @property
    def totals(self) -> ChainTotals:
        """Sums over the chains."""
        return ChainTotals.of(self.results)


def back_test(
    jobs: Sequence[BatchJob],
    gpus: int,
    chains: Sequence[tuple[float, ChainSpec]],
    rules: Sequence[Provisioner],
    until_s: float,
) -> list[TriedRule]:
    """Rules with what they would have done, in their order.

    Args:
        jobs: Jobs of the log, in the order of submission.
        gpus: Number of GPUs of the partition.
        chains: First submission (s) and form of each chain, in the order of time.
        rules: Rules to try. Their predictors should know nothing after the first chain's submission.
        until_s: End (s) of what is known; later jobs are not replayed.

    Raises:
        ValueError: There are no chains.
    """
    if not chains:
        raise ValueError("no chains to try rules on")
    replay = QueueReplay(BackfillQueue(gpus), [job for job in jobs if job.submit_s < until_s])
    results: list[list[ChainResult]] = [[] for _ in rules]
    for at_s, spec in chains:
        replay.advance(at_s)
        for place, rule in enumerate(rules):
            results[place].append(run_chain(replay.copy(), spec, rule))
    return [TriedRule(rule, tuple(found)) for rule, found in zip(rules, results, strict=True)]


def boldest(reactive: TriedRule, others: Sequence[TriedRule], most_overlap: float = MOST_OVERLAP) -> TriedRule:
    """The boldest rule that keeps a budget of overlap; without one, that with the least overlap.

    If even a reactive chain had no interruption, nothing is to be gained, and the least bold rule is taken.

    Args:
        reactive: Rule that submits a successor when its predecessor ends.
        others: Rules that submit ahead of time, the boldest one last.
        most_overlap: Part of the time that the overlap of all chains may have.
    """
    if reactive.totals.interruption_s == 0.0:
        return others[0]
    fitting = [each for each in others if each.totals.overlap_share <= most_overlap]
    return fitting[-1] if fitting else min(others, key=lambda each: each.totals.overlap_share)


REACTIVE, AVERAGE, PLANNED, BOOSTED, BACK_TESTED = "reactive", "average", "planned", "boosted", "back-tested"
PREDICTORS = (REACTIVE, AVERAGE, PLANNED, BOOSTED, BACK_TESTED)
"""Names of rules."""

NEED_LOG = (BOOSTED, BACK_TESTED)
"""Rules that are fitted to a log of `sacct`."""

_SAMPLES = 3000
"""Number of waits that a model is fitted to, about."""

_CHAINS = 8
"""Number of chains that try each rule."""

_LIMITS = 4
"""Length of their work, in limits of an allocation."""

_SHORTEST_LOOK_S, _LONGEST_LOOK_S = 300.0, 7200.0


@dataclass(frozen=True, slots=True)
class ChainRule:
    """Rule of a chain, as its record keeps it.

    Attributes:
        predictor: Name of the predictor, one of `PREDICTORS` but `BACK_TESTED`.
        margin_s: Time (s) that is added to each predicted wait.
        ahead: Largest number of successors that wait at once.
    """

    predictor: str
    margin_s: float = 0.0
    ahead: int = 1

    def provisioner(self, past: Sequence[BatchJob], total: int, limit_s: float, at_s: float) -> Provisioner:
        """The rule as one that decides.

        Args:
            past: Jobs of the log, in the order of submission.
            total: Number of the resource that the partition has.
            limit_s: Time limit (s) of an allocation. Looks are closer together if it is short.
            at_s: Now (s).

        Raises:
            UnfitEnvironment: scikit-learn is not installed.
            UsageError: The log has too few waits.
        """
        return Provisioner(
            predictor(self.predictor, past, total, at_s),
            self.margin_s,
            least_s=min(_SHORTEST_LOOK_S, limit_s / 20.0),
            most_s=min(_LONGEST_LOOK_S, limit_s / 4.0),
            ahead=self.ahead,
        )


def predictor(name: str, past: Sequence[BatchJob], total: int, at_s: float) -> WaitPredictor:
    """Predictor by its name; see `ChainRule.provisioner`.

    Raises:
        UnfitEnvironment: scikit-learn is not installed.
        UsageError: The log has too few waits, or there is no predictor of this name.
    """
    if name == BOOSTED:
        known = [job for job in past if job.gpus <= total]
        return GradientBoosting(logged_samples(known, total, at_s, max(1, len(known) // _SAMPLES)))
    simple: dict[str, WaitPredictor] = {REACTIVE: Reactive(), AVERAGE: AverageWait(), PLANNED: PlannedWait()}
    if name not in simple:
        raise UsageError(f"there is no predictor {name!r}", f"the predictors are {', '.join(PREDICTORS)}")
    return simple[name]


def why_not_tested(past: Sequence[BatchJob], limit_s: float) -> str:
    """Reason why a log is too small for a back test; empty if it suffices."""
    waits = sum(job.wait_s is not None for job in past)
    if waits < LEAST_SAMPLES:
        return f"`sacct` shows {counted(waits, 'wait')}, and {LEAST_SAMPLES} are needed"
    if past[-1].submit_s - past[0].submit_s < 2 * _LIMITS * limit_s:
        return f"the log of `sacct` is shorter than {2 * _LIMITS} limits of an allocation"
    return ""


def back_tested(
    past: Sequence[BatchJob], total: int, count: int, limit_s: float, overlap: Overlap, at_s: float
) -> ChainRule:
    """Boldest rule that would have kept a budget of overlap for chains in the second half of the log; see `boldest`.

    The predictor knows the first half alone meanwhile.

    Args:
        past: Jobs of the log, in the order of submission; `why_not_tested` has nothing against them.
        total: Number of the resource that the partition has.
        count: Number of it that an allocation has.
        limit_s: Time limit (s) of an allocation.
        overlap: Conduct of a successor that comes early.
        at_s: Now (s).

    Raises:
        UnfitEnvironment: scikit-learn is not installed.
        UsageError: The log has too few waits.
    """
    jobs = [job for job in past if job.gpus <= total]
    first_s, last_s = jobs[0].submit_s, min(at_s, jobs[-1].submit_s)
    half_s = (first_s + last_s) / 2.0
    room_s = max(0.0, last_s - _LIMITS * limit_s - half_s)
    chains = [
        (half_s + room_s * place / _CHAINS, ChainSpec(count, limit_s, _LIMITS * limit_s, overlap))
        for place in range(_CHAINS)
    ]
    known = [job for job in jobs if job.submit_s < half_s]
    name = BOOSTED if sum(job.wait_s is not None for job in known) >= LEAST_SAMPLES else PLANNED
    rules = [ChainRule(name, part * limit_s, ahead) for part, ahead in BOLDNESS]
    fitted = predictor(name, known, total, half_s)
    least_s = max(_SHORTEST_LOOK_S, limit_s / 50.0)  # each look asks the model, which takes milliseconds
    provisioners = [Provisioner(fitted, rule.margin_s, least_s, ahead=rule.ahead) for rule in rules]
    reactive, *others = back_test(jobs, total, chains, [Provisioner(Reactive()), *provisioners], inf)
    return rules[others.index(boldest(reactive, others))]
