"""NVIDIA's Multi-Process Service (MPS), which lets jobs of parallel lanes run on a GPU at the same moment.

A run uses a daemon that is already running. Else the run starts a daemon of its own, with pipes and logs in the run's
shared-memory folder; that daemon ends with the run. The GPU's compute mode never changes. Source: NVIDIA,
"Multi-Process Service", chapters 2 and 4.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ecoshare.errors import UnfitEnvironment

CONTROL = "nvidia-cuda-mps-control"
_SERVER = "nvidia-cuda-mps-server"[:15]  # the kernel keeps 15 letters
_DEFAULT_PIPES = Path("/tmp/nvidia-mps")  # the driver's default
_ANSWER_S = 10.0

_VOLTA = (7, 0)
_MOST, _MOST_BEFORE_VOLTA = 48, 16
"""Most clients of a daemon on one GPU. Some newer drivers take more."""

BEHIND: dict[str, str | None] = {"CUDA_MPS_CLIENT_PRIORITY": "1"}
"""Variables that give a client the lower of the two priorities, which are 0 (normal) and 1 (below normal)."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """An MPS daemon that answers.

    Attributes:
        pipes: Folder of the daemon's pipes; clients get it as `CUDA_MPS_PIPE_DIRECTORY`.
        ours: Whether this run started the daemon, and so must end it.
    """

    pipes: Path
    ours: bool

    @property
    def environment(self) -> dict[str, str | None]:
        """Variables that make a job a client of the daemon."""
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipes)}


def most_clients(capability: tuple[int, int] | None) -> int:
    """Most processes that MPS takes on a GPU.

    Args:
        capability: Compute capability of the GPU; None if it is not known.
    """
    return _MOST_BEFORE_VOLTA if capability is not None and capability < _VOLTA else _MOST


def running() -> Daemon | None:
    """Daemon that this process's environment names, else the one at the default path; None if it does not answer."""
    pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", _DEFAULT_PIPES))
    if not (pipes / "control").exists() or shutil.which(CONTROL) is None:
        return None
    try:
        _ask(pipes, "get_server_list")
    except (OSError, subprocess.SubprocessError):
        return None
    return Daemon(pipes, ours=False)


def is_server(pid: int) -> bool:
    """Whether a process is the server of a daemon. It is on the GPU for its clients, and does no work of its own."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == _SERVER
    except OSError:
        return False


def start(folder: Path, uuids: Sequence[str], environment: dict[str, str]) -> Daemon:
    """Start a daemon for some GPUs, with its pipes and logs below `folder`.

    Args:
        folder: An existing folder that only this run uses. The path must be short, since pipes are sockets.
        uuids: UUIDs of the GPUs.
        environment: Environment of the daemon. The guard recognises the run's processes by it.

    Raises:
        UnfitEnvironment: MPS is not installed, or the daemon does not come up.
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
                "CUDA_VISIBLE_DEVICES": ",".join(uuids),
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
    """End a daemon that this run started, once its clients have ended. Any other daemon stays."""
    if daemon.ours and (daemon.pipes / "control").exists():
        with contextlib.suppress(OSError, subprocess.SubprocessError):  # the sweep at the run's end ends what is left
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
