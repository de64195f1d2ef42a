"""NVIDIA's Multi-Process Service: whether jobs of parallel lanes can run on a GPU at the same moment.

A daemon that runs already is used. Else one is started for the run alone, its pipes and logs under the run's own
folder; it ends with the run. The GPU's compute mode is never changed. Client limits (16 or 48 contexts, by
architecture) are far above the number of lanes. Source: NVIDIA, "Multi-Process Service", chapters 2 and 4.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ecoshare.errors import UnfitEnvironment

CONTROL = "nvidia-cuda-mps-control"
_DEFAULT_PIPES = Path("/tmp/nvidia-mps")  # the driver's own default, not ours
_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon that answers.

    Attributes:
        pipes: Its `CUDA_MPS_PIPE_DIRECTORY`.
        ours: Whether this run has started it, and must end it.
    """

    pipes: Path
    ours: bool

    @property
    def environment(self) -> dict[str, str | None]:
        """What makes a job a client of it."""
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipes)}


def running() -> Daemon | None:
    """The daemon of this environment, if one answers."""
    pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", _DEFAULT_PIPES))
    if not (pipes / "control").exists() or shutil.which(CONTROL) is None:
        return None
    try:
        _ask(pipes, "get_server_list")
    except (OSError, subprocess.SubprocessError):
        return None
    return Daemon(pipes, ours=False)


def start(folder: Path, uuid: str, environment: dict[str, str]) -> Daemon:
    """Start a daemon for one GPU, with everything of its own under `folder`.

    Args:
        folder: Exists, and is nobody else's; its path must be short, since pipes are sockets.
        uuid: The GPU.
        environment: Of the daemon; the guard knows the run's processes by it.

    Raises:
        UnfitEnvironment: There is no such program, or it does not come up.
    """
    if shutil.which(CONTROL) is None:
        raise UnfitEnvironment(f"{CONTROL} is not installed", "it comes with the driver's compute utilities")
    pipes = folder / "mps"
    pipes.mkdir(mode=0o700)
    try:
        subprocess.run(
            [CONTROL, "-d"],
            env={
                **environment,
                "CUDA_VISIBLE_DEVICES": uuid,
                "CUDA_MPS_PIPE_DIRECTORY": str(pipes),
                "CUDA_MPS_LOG_DIRECTORY": str(pipes),
            },
            check=True,
            capture_output=True,
            timeout=_ANSWER_S,
        )
        _ask(pipes, "get_server_list")
    except (OSError, subprocess.SubprocessError) as error:
        raise UnfitEnvironment(f"a private MPS daemon does not come up: {error}") from error
    return Daemon(pipes, ours=True)


def end(daemon: Daemon) -> None:
    """End a daemon that is ours; its clients must be gone. Nothing where it has ended already."""
    if daemon.ours and (daemon.pipes / "control").exists():
        with contextlib.suppress(OSError, subprocess.SubprocessError):  # the run's last sweep ends what is left
            _ask(daemon.pipes, "quit")


def _ask(pipes: Path, question: str) -> str:
    return subprocess.run(
        [CONTROL],
        input=question + "\n",
        env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipes)},
        check=True,
        capture_output=True,
        text=True,
        timeout=_ANSWER_S,
    ).stdout
