"""Processes of a run under way, by role."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ecoshare.runtime.nodes import cleanup
from scripts.fuzz.commands import token_of


def processes(controller: int, run: Path) -> dict[str, list[int]]:
    """Processes of a run beside its controller: its `guard`, its warm `server`, each `job`. A rank is a job here."""
    found: dict[str, list[int]] = {}
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{controller}/task/{controller}/children").read_text().split():
            if is_guard(int(child)):
                found["guard"] = [int(child)]
    with contextlib.suppress(OSError, ValueError, KeyError):
        members = cleanup.members(token_of(run))
        for pid in members:
            found.setdefault("job" if _parent(pid) in members else "server", []).append(pid)
    return found


def is_guard(pid: int) -> bool:
    """Whether a process is a guard, also before it has its name."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return words[0] == b"ecoshare: guard" or b"ecoshare.runtime.nodes.guard" in words
    return False


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0
