"""Text from other people's files and programs, as it may be shown: it moves no cursor."""

from __future__ import annotations

_MOST = 2_000
_BEGIN, _END = 1_600, 300


def spelled(text: str) -> str:
    """The text with all characters spelled out that are neither printed nor white space."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char.isspace() else ascii(char)[1:-1] for char in text)


def legible(message: str) -> str:
    """The same, with the middle of lines left out that nobody would read to the end."""
    lines = (line if len(line) <= _MOST else f"{line[:_BEGIN]} ... {line[-_END:]}" for line in message.splitlines())
    return spelled("\n".join(lines))
