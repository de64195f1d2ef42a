"""Quote a wrong value in a message: short, printable, and the same everywhere."""

from __future__ import annotations

QUOTE_LIMIT = 60  # characters, so that a message stays on one line for any value


def quoted(value: object) -> str:
    """Short text that stands for a value from a job file.

    Text is quoted with control characters escaped, so that no message can move the cursor of a terminal.
    Never call it with a value of `env:`, which must not reach a log.
    """
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return repr(value if len(value) <= QUOTE_LIMIT else value[: QUOTE_LIMIT - 3] + "...")
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return quoted(str(value))
