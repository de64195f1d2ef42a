"""Ranks of the jobs of a lane for its turn, sent to the driver when they have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ecoshare.core.commands import Command, SetShares, Share
from ecoshare.core.policies.base import Policy
from ecoshare.core.records import Lane


class LaneRanks:
    """Ranks in all lanes, by the policy of the run."""

    def __init__(self, policy: Policy, next_id: Callable[[], int]) -> None:
        self._policy, self._next_id = policy, next_id

    def changed(self, lanes: Iterable[Lane]) -> list[Command]:
        """`SetShares` for each lane in which the order of the jobs has changed. Ranks are sent as small numbers."""
        commands: list[Command] = []
        for lane in lanes:
            if lane.places == 1:
                continue
            ranks = {name: self._policy.rank(job) for name, job in lane.jobs.items()}
            dense = {rank: place for place, rank in enumerate(sorted(set(ranks.values())))}
            shares = tuple(Share(name, dense[rank], 1.0) for name, rank in ranks.items())
            if shares and shares != lane.shares_sent:
                lane.shares_sent = shares
                commands.append(SetShares(self._next_id(), lane.number, shares))
        return commands
