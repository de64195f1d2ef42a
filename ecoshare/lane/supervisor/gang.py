"""Gang: the ranks of one attempt, a process for each of its devices, which begin together and end together.

Each rank gets the environment that `torchrun --standalone --nproc-per-node=N` would give it, so that a script which was
written for torchrun runs unmodified. The difference: no agent keeps the store of the rendezvous. Rank 0 opens it itself
at `MASTER_PORT`, as `init_process_group` does where `TORCHELASTIC_USE_AGENT_STORE` is not set.

A gang over several nodes has a launch on each of them. The ranks of a launch are numbered from 0 there; `number_of`
gives the number of a rank in the whole gang.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshare.lane.files import keep_outputs
from ecoshare.lane.messages import Ended, LaunchAttempt
from ecoshare.lane.tables.gang_table import GangTable
from ecoshare.values.attempt import Outcome
from ecoshare.values.job_spec import GangPart

if TYPE_CHECKING:
    from ecoshare.lane.supervisor.attempt_process import AttemptProcess


def launches(launch: LaunchAttempt) -> list[LaunchAttempt]:
    """Launch of each rank of an attempt: on its own lane, with a folder of its own except for the first."""
    return [
        replace(
            launch,
            rank=rank,
            tables=[table],
            gang_lanes=launch.tables,
            env={**launch.env, **environment(launch, rank)},
            folder=str(_folder(launch, rank)),
            processors=launch.rank_processors[rank] if launch.rank_processors else [],
        )
        for rank, table in enumerate(launch.tables)
    ]


def number_of(launch: LaunchAttempt, rank: int) -> int:
    """Number in the whole gang of a rank of a launch."""
    return rank + (launch.gang_part["first_rank"] if launch.gang_part is not None else 0)


def has_first(launch: LaunchAttempt) -> bool:
    """Whether the launch of a job has rank 0, and so the output and the exit record of the job."""
    return number_of(launch, 0) == 0


def count_of(launch: LaunchAttempt) -> int:
    """Number of ranks of the whole gang; 0 for a job of one process."""
    return launch.ranks if launch.gang_part is None else GangPart(**launch.gang_part).world_size


def _folder(launch: LaunchAttempt, rank: int) -> Path:
    number = number_of(launch, rank)
    return folder_of(Path(launch.folder), number) if number else Path(launch.folder)


def folder_of(folder: Path, rank: int) -> Path:
    """Folder of a rank other than the first, in the folder of its job."""
    return folder / f"rank-{rank}"


def keep_outputs_beyond(folder: Path, ranks: int, attempt: int) -> None:
    """Give the logs of ranks that earlier attempts of a job had, and this one of `ranks` has not, their number.

    Raises:
        OSError: There is no room or no permission.
    """
    for each in folder.glob("rank-*"):
        if int(each.name.removeprefix("rank-")) >= ranks:
            keep_outputs(each, attempt)


def job_folder(launch: LaunchAttempt) -> Path:
    """Folder of the job of a rank."""
    return Path(launch.folder).parent if number_of(launch, launch.rank) else Path(launch.folder)


def environment(launch: LaunchAttempt, rank: int) -> dict[str, str]:
    """Variables by which a rank finds the others. The names are those of torchrun (torch.distributed.elastic)."""
    here = len(launch.tables)
    part = GangPart(**launch.gang_part) if launch.gang_part is not None else _whole(here, launch.master_port)
    number, count = str(part.first_rank + rank), str(part.world_size)
    return {
        "RANK": number,
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": str(part.node),
        "ROLE_RANK": number,
        "ROLE_NAME": "default",
        "WORLD_SIZE": count,
        "LOCAL_WORLD_SIZE": str(here),
        "GROUP_WORLD_SIZE": str(part.nodes),
        "ROLE_WORLD_SIZE": count,
        "MASTER_ADDR": part.address,
        "MASTER_PORT": str(part.port),
        "TORCHELASTIC_RUN_ID": f"{launch.job}-{launch.attempt}",
        "TORCHELASTIC_RESTART_COUNT": str(launch.attempt - 1),
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }


def _whole(ranks: int, port: int) -> GangPart:
    """A gang of one node as a part: all of it."""
    return GangPart(first_rank=0, world_size=ranks, node=0, nodes=1, address="127.0.0.1", port=port)


def is_one_of_several(launch: LaunchAttempt) -> bool:
    """Whether a launch is a rank that has fellows, here or on other nodes."""
    return launch.ranks > 1 or launch.gang_part is not None


def match_threads(launch: LaunchAttempt) -> None:
    """Give torch one thread for operations in a rank on a GPU, as torchrun does, unless the user gives a number."""
    if is_one_of_several(launch) and not launch.processors and "OMP_NUM_THREADS" not in os.environ:
        import torch

        torch.set_num_threads(1)


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
