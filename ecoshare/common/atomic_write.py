"""Replaces a file as a whole: a reader sees the old content or the new content, never a part.

::

    path.new   created ──► written ──► synced, if asked ──► renamed to path
                  │           │              │                    │
                  └───────────┴──────────────┴── an error:        └── every reader that opens path now
                                                 path.new goes,       gets the new content
                                                 path stays

Every layer may import this module. It uses the standard library only, since `lane/` runs inside users' processes.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def atomic_write(
    path: Path, content: str | bytes, *, sync: bool = False, mode: int = 0o666, concurrent: bool = False
) -> None:
    """Write `content` beside `path` and rename it to `path`; text is encoded in UTF-8.

    Args:
        path: File to replace.
        content: New content of the file.
        sync: Whether the content is on the disk before the rename. A power cut may still undo the rename itself. A
            caller that must rule that out syncs the folder as well.
        mode: Permissions of a new file, less the umask.
        concurrent: Whether several threads or processes may write `path` at the same time. Each then uses a temporary
            name of its own, `.<stem>-<random>.new`. Without it the name is `<name>.new`. A killed writer leaves its
            temporary file behind: the next writer removes `<name>.new`, and nothing removes a random name.

    Raises:
        OSError: No room or no permission. `path` is unchanged.
    """
    data = content.encode() if isinstance(content, str) else content
    if concurrent:
        beside = path.with_name(f".{path.stem}-{os.urandom(4).hex()}.new")
    else:
        beside = path.with_name(f"{path.name}.new")
        beside.unlink(missing_ok=True)  # a job may have put a link or a pipe there
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
