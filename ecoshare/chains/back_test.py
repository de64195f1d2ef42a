"""Choice of a rule by what it would have done in the past.

A prediction of the wait is of a submission now. If the queue grows before the next look, the successor is late, however
right the prediction was. How much earlier to submit depends on the bursts of the cluster and on what an early successor
costs: little if it takes over at a checkpoint, its whole overlap if it waits idle. So rules with several predictors and
margins are tried on chains in a replay of the log, and the cheapest one is taken.
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

WORTH = 9.0
"""Seconds of overlap that one second of interruption costs: GPUs that work are worth nine times GPUs that idle. It is a
choice of the user, and gives a quantile of 0.9 where no burst comes between (`gradient_boosting.QUANTILE`)."""

MOST_OVERLAP = 0.1
"""Largest part of the time of all chains in which two allocations may be held, if any rule keeps it."""

MARGINS = (0.0, 0.25, 0.5)
"""Margins to try, as parts of the limit."""

AHEAD = (1, 3)
"""Numbers of successors that wait at once, to try."""


@dataclass(frozen=True, slots=True)
class TriedRule:
    """Rule and what it would have done.

    Attributes:
        provisioner: The rule.
        cost_s: Interruption (s), `WORTH` times, and overlap (s) of all chains.
        results: Result of each chain.
    """

    provisioner: Provisioner
    cost_s: float
    results: tuple[ChainResult, ...]


def back_test(
    jobs: Sequence[BatchJob],
    gpus: int,
    chains: Sequence[tuple[float, ChainSpec]],
    rules: Sequence[Provisioner],
    until_s: float,
    worth: float = WORTH,
    most_overlap: float = MOST_OVERLAP,
) -> list[TriedRule]:
    """Rules with their costs, those within the most overlap first, and among them the cheapest one first.

    Equally cheap rules keep the order of `rules`.

    Args:
        jobs: Jobs of the log, in the order of submission.
        gpus: Number of GPUs of the partition.
        chains: First submission (s) and form of each chain, in the order of time.
        rules: Rules to try. Their predictors should know nothing after the first chain's submission.
        until_s: End (s) of what is known; later jobs are not replayed.
        worth: Seconds of overlap that a second of interruption costs.
        most_overlap: Part of the time that the overlap of all chains may have.

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
    tried = [_tried(rule, found, worth) for rule, found in zip(rules, results, strict=True)]
    return sorted(tried, key=lambda each: (ChainTotals.of(each.results).overlap_share > most_overlap, each.cost_s))


def _tried(rule: Provisioner, results: Sequence[ChainResult], worth: float) -> TriedRule:
    cost_s = sum(worth * each.interruption_s + each.overlap_s for each in results)
    return TriedRule(rule, cost_s, tuple(results))
