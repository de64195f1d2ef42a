"""What the controller and the lanes' supervisor say to each other: one JSON object a line, over a Unix socket pair."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

GRACE_S = 10.0
"""For a job that must end: to reach its next boundary, and then from SIGTERM to SIGKILL."""

PRUNED = 86
"""Exit code of a job that is `called` and has ended itself as one that others of its sweep do better than."""


@dataclass(frozen=True, slots=True)
class LaunchAttempt:
    """Start an attempt of a job.

    Attributes:
        command: Id that the answer repeats.
        tables: Path of the table of each lane that the job uses, and the slot that it has in each.
        script: Absolute path; or None, and `module` names a module to run as `python -m` would.
        env: What to change in the environment; None takes a name out.
        python: Interpreter for a fresh start; None forks from the warm server unless `fresh`.
        device: `cpu`, or `cuda` for the device that `env` makes visible.
        cap_bytes: Most memory that the job may use.
        timeout_s: Longest time that it may hold the turn without a boundary, from its first one on.
        startup_timeout_s: Longest time that it may hold the turn before its first boundary.
        folder: Where its logs, traces and exit records go.
        opened_s: When the run was opened, on the monotonic clock: its trace counts from there.
        called: Instead of a script or a module: what to call the function with that the server was forked with.
        fused: As a thread of the process that those of its script and lane share, where that can be.
        lane_bytes: Where fused, most memory that this process may rise to.
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
    lane_bytes: int = 0


@dataclass(frozen=True, slots=True)
class StopAttempt:
    """End an attempt of a job: at its next boundary, or at once.

    Attributes:
        pruned: It ends as one that others of its sweep do better than.
    """

    job: str
    attempt: int
    at_once: bool
    reason: str
    grace_s: float
    pruned: bool = False


@dataclass(frozen=True, slots=True)
class MoveAttempt:
    """Let an attempt of a job go on in another lane, from its next boundary on; nothing where it has ended.

    It is answered in the lanes' tables: the job empties the slot that it had.

    Attributes:
        command: Id that the slot there was prepared for.
    """

    command: int
    job: str
    attempt: int
    lane: int
    slot: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The supervisor has loaded torch and takes launches."""

    pid: int
    torch: str
    threads: int
    load_s: float


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
    """An attempt in a shared process is over, and the process goes on: said to the supervisor, by that process.

    Attributes:
        command: That started it.
        exit_code: As of a process of its own.
        moved_out: Why it must have one; empty where it was at its end.
        unfit: So must all of its script.
        peak_bytes: Most memory that it had, with what all of the process have in common.
        retires: The process takes no other, since memory was left behind in it.
    """

    command: int
    exit_code: int
    moved_out: str
    unfit: bool
    peak_bytes: int
    retires: bool


Message = LaunchAttempt | StopAttempt | MoveAttempt | Ready | Launched | NotLaunched | NotMoved | Ended | Left

_TYPES: dict[str, type[Any]] = {
    each.__name__: each
    for each in (LaunchAttempt, StopAttempt, MoveAttempt, Ready, Launched, NotLaunched, NotMoved, Ended, Left)
}


def fields_of(value: Any) -> dict[str, Any]:
    """Fields of a dataclass by name; unlike `asdict` without copies of all that is in them."""
    kind: Any = type(value)
    return {name: getattr(value, name) for name in _names(kind)}


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


def encode(message: Message) -> bytes:
    """One line, with its newline."""
    return json.dumps({"type": type(message).__name__, **fields_of(message)}).encode() + b"\n"


def decode(line: bytes) -> Message:
    """The message of one line.

    Raises:
        ValueError: It is not one of ours.
    """
    try:
        given = json.loads(line)
        message: Message = _TYPES[given.pop("type")](**given)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a message: {line[:200]!r}") from error
    return message
