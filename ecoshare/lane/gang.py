"""Gang: the ranks of one attempt, which begin together and end together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ecoshare.lane.gang_table import GangTable
from ecoshare.lane.messages import Ended, LaunchAttempt

if TYPE_CHECKING:
    from ecoshare.lane.attempt_process import AttemptProcess

_OF_RANK = "rank "


@dataclass(slots=True)
class Gang:
    """Ranks of an attempt, seen from their supervisor.

    A rank that ends without success ends the others at once: they would wait for it in their collectives for ever.

    Attributes:
        launch: The attempt.
        table: Table by which the ranks agree when to hand over.
        running: Ranks that have not ended.
        ended: End of each rank that has ended.
        culprit: Rank that ended the others; None if there is none.
        is_given_up: Whether the attempt was reported as not launched, so that its end is not reported.
    """

    launch: LaunchAttempt
    table: GangTable
    running: list[AttemptProcess] = field(default_factory=list)
    ended: dict[int, Ended] = field(default_factory=dict)
    culprit: int | None = None
    is_given_up: bool = False

    def give_up(self) -> None:
        """End the ranks that were started, because another one could not be."""
        self.is_given_up = True
        self._kill_all()

    def rank_ended(self, rank: AttemptProcess, ended: Ended) -> Ended | None:
        """Note the end of a rank. Return the end of the attempt if it was the last one, else None."""
        self.running.remove(rank)
        if not self.running:
            self.table.close()
        self.ended[rank.launch.rank] = ended
        if ended.outcome != "completed" and self.culprit is None and not self.is_given_up:
            self.culprit = rank.launch.rank
            self._kill_all()
        return self._whole() if not self.running and not self.is_given_up else None

    def _kill_all(self) -> None:
        for each in self.running:
            each.kill()

    def _whole(self) -> Ended:
        """End of the attempt: that of the rank which ended the others, with the counters of rank 0."""
        told = self.ended[self.culprit or 0]
        is_asked = told.outcome in ("stopped", "pruned")
        reason = told.reason if is_asked or not told.reason else f"{_OF_RANK}{self.culprit or 0}: {told.reason}"
        usages = [each.usage for each in self.ended.values()]
        usage = {
            **self.ended[0].usage,
            "cpu_s": _over(sum, usages, "cpu_s"),
            "peak_bytes": _over(max, usages, "peak_bytes"),
        }
        return replace(told, reason=reason, usage=usage)


def rank_in(reason: str) -> int:
    """Rank that the reason for the end of a gang names; 0 if it names none."""
    number = reason.removeprefix(_OF_RANK).partition(":")[0]
    return int(number) if reason.startswith(_OF_RANK) and number.isdecimal() else 0


def _over(function: Callable[[list[float]], float], usages: list[dict[str, float]], name: str) -> float:
    return function([usage.get(name, 0) for usage in usages])
