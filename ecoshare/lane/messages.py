"""Messages between the controller and the lanes' supervisor: one JSON object a line, over a Unix socket pair."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, get_args

GRACE_S = 10.0
"""Grace period (s) of a job that must end: until its next boundary, and then from SIGTERM to SIGKILL."""

PRUNED = 86
"""Exit code of a job with `called` that has ended itself because other trials of its sweep do better."""


@dataclass(frozen=True, slots=True)
class LaunchAttempt:
    """Start an attempt of a job.

    Attributes:
        command: Id that the answer repeats.
        tables: For each lane that the job uses, the path of its table and the job's slot in it.
        script: Absolute path of the script; None if `module` names a module to run as `python -m` would, or `called`
            is set.
        env: Changes to the environment; None removes a variable.
        python: Interpreter for a fresh start; None forks from the warm server unless `fresh`.
        device: `cpu`, or `cuda` for the device that `env` makes visible.
        cap_bytes: Memory that the job is promised. On a GPU its allocator is limited to that.
        context_bytes: Part of it that the allocator of the job may not use, since the context takes it; 0 on `cpu`.
        timeout_s: Longest time (s) that the job may hold the turn without a boundary, after its first boundary.
        startup_timeout_s: Longest time (s) that the job may hold the turn before its first boundary.
        folder: Folder for the job's logs, traces and exit records.
        opened_s: Time (s) on the monotonic clock when the run was opened. Times in traces count from it.
        called: Argument for the function with which the server was forked, instead of a script or a module.
        fused: Whether to run the job, if possible, as a thread of the process that jobs of its script and lane share.
        process_bytes: Most memory of that process, if `fused`.
        machine_bytes: Memory that all jobs on the processors of this machine may use together; 0 on a GPU.
        launcher: Name of the launcher that the job is: other processes use the device for it; empty if it is none.
        processors: Numbers of the processors that the job may use; empty for all that the server may use.
        ranks: Number of ranks, each a process with its own lane; 0 for a job of one process.
        rank: Number of this rank.
        master_port: Port on the loopback address at which rank 0 opens the store of the rendezvous.
        rank_processors: Numbers of the processors of each rank; empty for all that the server may use.
        gang_table: Path of the table of the gang; empty without ranks.
        gang_lanes: Path of the table of the lane and slot there of each rank.
        gang_part: Fields of the part of a gang over several nodes that these ranks are, see
            `base.attempt.GangPart`; None for a whole gang.
        service: Fields of the service that the job is, see `base.service.service_as_dict`; None for any other job.
        requests_path: Path of the record of the requests of this attempt; empty if the job is no service.
        batches_path: Path for the times of answers by batch size, if the run is for a profile; otherwise empty.
    """

    command: int
    job: str
    attempt: int
    tables: list[tuple[str, int]]
    script: str | None
    module: str | None
    args: list[str]
    cwd: str
    env: dict[str, str | None]
    python: str | None
    fresh: bool
    device: str
    cap_bytes: int
    timeout_s: float | None
    startup_timeout_s: float | None
    folder: str
    opened_s: float
    called: str | None = None
    fused: bool = False
    process_bytes: int = 0
    machine_bytes: int = 0
    context_bytes: int = 0
    launcher: str = ""
    processors: Sequence[int] = ()
    ranks: int = 0
    rank: int = 0
    master_port: int = 0
    rank_processors: Sequence[Sequence[int]] = ()
    gang_table: str = ""
    gang_lanes: Sequence[tuple[str, int]] = ()
    gang_part: dict[str, Any] | None = None
    service: dict[str, Any] | None = None
    requests_path: str = ""
    batches_path: str = ""


@dataclass(frozen=True, slots=True)
class StopAttempt:
    """End an attempt of a job: at its next boundary, or at once.

    Attributes:
        pruned: Whether it ends because other trials of its sweep do better.
    """

    job: str
    attempt: int
    at_once: bool
    reason: str
    grace_s: float
    pruned: bool = False


@dataclass(frozen=True, slots=True)
class MoveAttempt:
    """Let an attempt of a job go on in another lane, from its next boundary on. Ignored if the attempt has ended.

    The answer is in the lanes' tables: the job empties the slot that it had.

    Attributes:
        command: Id of the command for which the new slot was prepared.
    """

    command: int
    job: str
    attempt: int
    lane: int
    slot: int


@dataclass(frozen=True, slots=True)
class KeepLane:
    """Let an attempt take its turn and keep it to its end: its child processes use the device."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class PrepareForks:
    """Many jobs will be launched: make the fork of each cheap. It comes before the first launch."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The supervisor has loaded torch and takes launches.

    Attributes:
        torch: Version of torch.
        threads: Number of torch's threads within an operation.
        load_s: Time (s) that loading took.
        cuda: Version of CUDA for which torch was built; empty for none.
        hip: Version of HIP for which torch was built; empty for none.
        architectures: GPUs for which torch has kernels, as in `devices.torch_build.TorchBuild`.
    """

    pid: int
    torch: str
    threads: int
    load_s: float
    cuda: str = ""
    hip: str = ""
    architectures: str = ""


@dataclass(frozen=True, slots=True)
class Launched:
    """The process of an attempt exists."""

    command: int
    pid: int
    warm: bool
    why: str


@dataclass(frozen=True, slots=True)
class NotLaunched:
    """The process of an attempt could not be made."""

    command: int
    error: str


@dataclass(frozen=True, slots=True)
class NotMoved:
    """An attempt stays where it is."""

    command: int
    error: str


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt is over and its record is written.

    Attributes:
        outcome: Value of a `core.events.Outcome`.
        usage: Fields of a `core.events.Usage`.
    """

    job: str
    attempt: int
    outcome: str
    exit_code: int | None
    reason: str
    usage: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Left:
    """An attempt in a shared process is over, and the process goes on. The shared process tells the supervisor.

    Attributes:
        command: Id of the command that started the attempt.
        exit_code: Exit code that a process of its own would have had.
        moved_out: Reason why the job needs a process of its own; empty if it does not.
        unfit: Whether every job of the script needs a process of its own.
        peak_bytes: Peak memory of the job, with the memory that all jobs of the process have in common.
        retires: Whether the process takes no more jobs, because too much memory or too many open files were left in it.
    """

    command: int
    exit_code: int
    moved_out: str
    unfit: bool
    peak_bytes: int
    retires: bool


Message = (
    LaunchAttempt
    | StopAttempt
    | MoveAttempt
    | KeepLane
    | PrepareForks
    | Ready
    | Launched
    | NotLaunched
    | NotMoved
    | Ended
    | Left
)

_TYPES: dict[str, type[Any]] = {each.__name__: each for each in get_args(Message)}


def fields_of(value: Any) -> dict[str, Any]:
    """Fields of a dataclass by name. Unlike `asdict`, it does not copy the values."""
    kind: Any = type(value)
    return {name: getattr(value, name) for name in _names(kind)}


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


def encode(message: Message) -> bytes:
    """Line of a message, with its newline."""
    return json.dumps({"type": type(message).__name__, **fields_of(message)}).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Message of one line.

    Raises:
        ValueError: If the line is not one of our messages.
    """
    try:
        given = json.loads(line)
        message: Message = _TYPES[given.pop("type")](**given)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a message: {line[:200]!r}") from error
    return message
