"""Choice of a rule by what it would have done in the past.

A prediction of the wait is of a submission now. If the queue grows before the next look, the successor is late, however
right the prediction was. How much earlier to submit depends on the bursts of the cluster and on what an early successor
costs: little if it takes over at a checkpoint, its whole overlap if it waits idle.

So rules are tried on chains in a replay of the log, and the boldest one is taken that keeps a budget of overlap.
Overlap is alike from week to week. Interruption is not: it comes from few bursts, and the rule with the least of it in
the past is often only the luckiest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ecoshare.chains.backfill_queue import BackfillQueue
from ecoshare.chains.batch_job import BatchJob
from ecoshare.chains.chain_result import ChainResult, ChainTotals
from ecoshare.chains.provisioner import Provisioner
from ecoshare.chains.queue_replay import QueueReplay
from ecoshare.chains.simulated_chain import ChainSpec, run_chain

MOST_OVERLAP = 0.05
"""Largest part of the time of all chains in which two allocations may be held, if any rule keeps it."""

BOLDNESS = ((0.0, 1), (0.0, 3), (0.05, 3), (0.1, 3), (0.25, 3), (0.5, 3), (0.7, 3), (0.85, 3), (0.92, 3))
"""Margin, as part of the limit, and largest number of successors that wait at once: rules to try, the boldest one last.

Beyond the last margin a chain hops from job to job in an empty cluster, with an overlap of its own each time.
"""


@dataclass(frozen=True, slots=True)
class TriedRule:
    """Rule and what it would have done.

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
