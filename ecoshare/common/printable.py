"""Makes text from foreign files and programs safe to print: it cannot move the cursor of a terminal."""

from __future__ import annotations

_MOST = 2_000
_BEGIN, _END = 1_600, 300


def spelled(text: str) -> str:
    """Text with an escape in place of each character that is neither printable nor white space."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char.isspace() else ascii(char)[1:-1] for char in text)


def last_line(text: str) -> str:
    """Last line of a text that is not blank, legible: a program or a traceback tells its cause there. May be empty."""
    lines = text.strip().splitlines()
    return legible(lines[-1].strip()) if lines else ""


def legible(message: str) -> str:
    """Message as `spelled` returns it, without the middle of very long lines."""
    lines = (line if len(line) <= _MOST else f"{line[:_BEGIN]} ... {line[-_END:]}" for line in message.splitlines())
    return spelled("\n".join(lines))
