"""Prints sentences: with line breaks between words in a terminal, in one line in a pipe."""

from __future__ import annotations

import re

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ecoshare.common.printable import spelled

_HEAD = re.compile(r" +\S+(?: \S+)*  +(?=\S)")
"""Head of a line: indented words and a gap, such as `  3.7 s to 3.8 s  `. Later lines are indented past the gap."""

_WORD = re.compile(r"[(+-]?\d[\d.]* (?:%|[munkM]?[JsW]|min|h|d|MHz|[KMGT]?i?B)(?!\w)\S*|\S+")
"""Unit that is never broken: a word, or a number with its unit."""

_MOST_HEAD = 0.4
"""Largest part of the width that a head may take."""


def say(console: Console, words: str | Text, style: str = "") -> None:
    """Print a sentence. A terminal gets line breaks between words only; a word longer than a line stays whole.

    Control characters in a plain string are spelled out, since names come from foreign files.
    """
    text = words if isinstance(words, Text) else Text(spelled(words), style=style)
    for line in broken(text, console.width) if console.is_terminal else [text]:
        console.print(line, soft_wrap=True)


def filled(words: str, console: Console) -> str:
    """The text that `say` prints, without style."""
    if not console.is_terminal:
        return words
    return "\n".join(line.plain for line in broken(Text(words), console.width))


def broken(text: Text, width: int) -> list[Text]:
    """The text in lines of at most `width` cells; if the first line is indented, the others are, too."""
    plain = text.plain
    indent = len(plain) - len(plain.lstrip(" "))
    head = _HEAD.match(plain)
    below = indent + 2 if indent else 0
    if head is not None and head.end() <= _MOST_HEAD * width:
        below = head.end()
    lines: list[Text] = []
    margin, begin, end = 0, 0, 0  # the current line
    for word in _WORD.finditer(plain):
        begins_at, ends_at = (margin + cell_len(plain[begin:place]) for place in word.span())
        if ends_at > width and begins_at > below:
            lines.append(Text(" " * margin).append_text(text[begin:end]))
            margin, begin = below, word.start()
        end = word.end()
    return [*lines, Text(" " * margin).append_text(text[begin:])]
