"""Makes text from foreign files, programs and jobs safe to print: no control character of it reaches the terminal."""

from __future__ import annotations

import codecs
import re
import time

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


LONGEST = 4_000
"""Most characters of a line that are kept; a job may write a gigabyte without an end of line."""

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and moves of the cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles of windows, links, clipboards
    r"|\x1b[ -/]*[0-~]"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
"""Escape sequences that are complete. They say how to show a text, and are left out."""


_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_BEGUN = re.compile(r"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?|\x9b[0-?]*[ -/]*)\Z")
"""Escape sequence that the next bytes may complete."""


class TerminalText:
    """Decodes the output of a job for a terminal, as it comes: with its colours and progress bars, and nothing else.

    Other sequences could set the title, write to the clipboard, or hide what was printed before.
    """

    def __init__(self) -> None:
        """Before the first byte."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def take(self, chunk: bytes) -> str:
        """Text of the next bytes. A sequence without its end is held back, up to `LONGEST` characters."""
        text = self._rest + self._decoder.decode(chunk)
        begun = _BEGUN.search(text)
        whole = begun.start() if begun is not None and len(text) - begun.start() <= LONGEST else len(text)
        text, self._rest = text[:whole], text[whole:]
        found, done = [], 0
        for sequence in _SEQUENCE.finditer(text):
            found += [_plain(text[done : sequence.start()]), *_COLOUR.findall(sequence[0])]
            done = sequence.end()
        return "".join((*found, _plain(text[done:])))


def _plain(text: str) -> str:
    """Text without control characters, but those that move within a line, and its ends."""
    parts = re.split(r"([\n\r\t\b])", text)
    return "".join(part if at % 2 else spelled(part).translate(_SPACES) for at, part in enumerate(parts))


class OutputLines:
    """Decodes the output of a job as it comes."""

    def __init__(self) -> None:
        """Before the first byte."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def take(self, chunk: bytes) -> list[str]:
        """The lines that end in the next bytes."""
        *lines, rest = (self._rest + self._decoder.decode(chunk)).split("\n")
        # A progress bar begins its line anew: only its last state is kept, with a \r that may belong to \r\n.
        state = rest.rstrip("\r")
        self._rest = state.rpartition("\r")[2][: LONGEST + 1] + ("\r" if len(state) < len(rest) else "")
        return [shown(line) for line in lines]

    @property
    def unfinished(self) -> str:
        """The line without its end, as it is shown."""
        return shown(self._rest)


def shown(line: str) -> str:
    """A line as it is shown: without escape sequences, and with all other control characters spelled out."""
    text = line.rstrip("\r").rpartition("\r")[2]
    text = _SEQUENCE.sub("", text[:LONGEST] + ("…" if len(text) > LONGEST else ""))
    return spelled(text.expandtabs(8)).translate(_SPACES)


_SPACES = {ord(char): " " for char in "\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029"}
"""White space that `spelled` leaves, and that would begin a line or is a control character."""


def utc_text(unix_s: float | None = None) -> str:
    """A time (s since 1970), or the present one, in ISO 8601 and UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_s))
