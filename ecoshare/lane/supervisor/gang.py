"""Gang: the ranks of one attempt, a process for each of its devices, which begin together and end together.

Each rank gets the environment that `torchrun --standalone --nproc-per-node=N` would give it, so that a script which was
written for torchrun runs unmodified. The difference: no agent keeps the store of the rendezvous. Rank 0 opens it itself
at `MASTER_PORT`, as `init_process_group` does where `TORCHELASTIC_USE_AGENT_STORE` is not set.

A gang over several nodes has a launch on each of them. The ranks of a launch are numbered from 0 there; `number_of`
gives the number of a rank in the whole gang.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from ecoshare.base.attempt import GangPart
from ecoshare.lane.files import keep_outputs
from ecoshare.lane.messages import LaunchAttempt


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


OF_RANK = "rank "


def rank_in(reason: str) -> int:
    """Rank that the reason for the end of a gang names; 0 if it names none."""
    number = reason.removeprefix(OF_RANK).partition(":")[0]
    return int(number) if reason.startswith(OF_RANK) and number.isdecimal() else 0
