"""Gang: the ranks of one attempt, which begin together and end together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ecoshare.lane.gang_table import GangTable
from ecoshare.lane.messages import Ended, LaunchAttempt
from ecoshare.lane.ranks import number_of
from ecoshare.values.attempt import Outcome

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
    _together_s: float | None = None

    def together_for_s(self, now_s: float) -> float:
        """Time (s) since all ranks were first seen with their turns; 0 before. A rank may need others to prepare."""
        if self._together_s is None and self.table.all_have_turn:
            self._together_s = now_s
        return 0.0 if self._together_s is None else now_s - self._together_s

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
        outcome = Outcome(ended.outcome)
        # Ranks that were asked to end have a grace each.
        is_failure = outcome is not Outcome.COMPLETED and not outcome.was_asked_for
        if is_failure and self.culprit is None and not self.is_given_up:
            self.culprit = rank.launch.rank
            self._kill_all()
        return self._whole() if not self.running and not self.is_given_up else None

    def _kill_all(self) -> None:
        for each in self.running:
            each.kill()

    def _whole(self) -> Ended:
        """End of the attempt: that of the rank which ended the others, with the counters of rank 0.

        If none did, the attempt was stopped if any rank was.
        """
        stopped = [rank for rank, each in self.ended.items() if Outcome(each.outcome).was_asked_for]
        rank = self.culprit if self.culprit is not None else min(stopped, default=0)
        told = self.ended[rank]
        is_of_rank = self.culprit is not None and told.reason
        reason = f"{_OF_RANK}{number_of(self.launch, rank)}: {told.reason}" if is_of_rank else told.reason
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
