"""Ranks of a gang: a job of several devices that is one process for each of them.

Each rank gets the environment that `torchrun --standalone --nproc-per-node=N` would give it, so that a script which was
written for torchrun runs unmodified. The difference: no agent keeps the store of the rendezvous. Rank 0 opens it itself
at `MASTER_PORT`, as `init_process_group` does where `TORCHELASTIC_USE_AGENT_STORE` is not set.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

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
            folder=launch.folder if rank == 0 else str(folder_of(Path(launch.folder), rank)),
            processors=launch.rank_processors[rank] if launch.rank_processors else [],
        )
        for rank, table in enumerate(launch.tables)
    ]


def folder_of(folder: Path, rank: int) -> Path:
    """Folder of a rank other than the first, in the folder of its job."""
    return folder / f"rank-{rank}"


def job_folder(launch: LaunchAttempt) -> Path:
    """Folder of the job of a rank."""
    return Path(launch.folder).parent if launch.rank else Path(launch.folder)


def environment(launch: LaunchAttempt, rank: int) -> dict[str, str]:
    """Variables by which a rank finds the others. The names are those of torchrun (torch.distributed.elastic)."""
    count = str(len(launch.tables))
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "ROLE_RANK": str(rank),
        "ROLE_NAME": "default",
        "WORLD_SIZE": count,
        "LOCAL_WORLD_SIZE": count,
        "GROUP_WORLD_SIZE": "1",
        "ROLE_WORLD_SIZE": count,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(launch.master_port),
        "TORCHELASTIC_RUN_ID": f"{launch.job}-{launch.attempt}",
        "TORCHELASTIC_RESTART_COUNT": str(launch.attempt - 1),
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }


def match_threads(launch: LaunchAttempt) -> None:
    """Give torch one thread for operations in a rank on a GPU, as torchrun does, unless the user gives a number."""
    if launch.ranks > 1 and not launch.processors and "OMP_NUM_THREADS" not in os.environ:
        import torch

        torch.set_num_threads(1)
