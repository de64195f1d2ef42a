"""Reader of the examples on a documentation page, which compares their output with the output that the page shows.

A comment directly above a fenced block says what to do with it::

    <!-- not run: REASON -->    a console block that cannot run here
    <!-- run -->                a program that console blocks further down need
    <!-- file: NAME -->         the content of a file that they need
    <!-- data: PATH -->         a console block needs this file of the folder that ECOSHARE_DATA names
    <!-- run by: TEST -->       commands that another test runs
    <!-- in order -->           runs after the blocks above with this mark, in their folder: `test_queue_page.py`

In a console block, `$ ` begins a command, and what it prints follows. A line `...` stands for any number of lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

_COMMENT = re.compile(r"<!--\s*(.+?)\s*-->", re.DOTALL)
_DATES = (
    (re.compile(r"\b\d{8}-\d{6}\b"), "STAMP"),
    (re.compile(r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?Z?)?"), "DATE"),
)


@dataclass(frozen=True, slots=True)
class Block:
    """Fenced block of a page.

    Attributes:
        line: Line of its opening fence, counted from 1.
        marks: Words of the comments directly above, in order.
    """

    page: Path
    line: int
    language: str
    text: str
    marks: tuple[str, ...] = ()

    def mark(self, name: str) -> str | None:
        """Words after `NAME:` in a mark, empty for a mark without more words; None if there is no such mark."""
        for each in self.marks:
            head, _, rest = each.partition(":")
            if head.strip() == name:
                return rest.strip()
        return None


@dataclass(frozen=True, slots=True)
class Step:
    """Command of a console block, with the lines that the page shows as its output."""

    command: str
    shown: tuple[str, ...]


def blocks(page: Path) -> list[Block]:
    """Fenced blocks of a page, in order."""
    found: list[Block] = []
    marks: list[str] = []
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type == "html_block":
            marks += _COMMENT.findall(token.content)
            continue
        if token.type == "fence":
            assert token.map is not None
            words = token.info.split()
            found.append(Block(page, token.map[0] + 1, words[0] if words else "", token.content, tuple(marks)))
        marks = []
    return found


def steps(block: Block) -> list[Step]:
    """Commands of a console block, each with its output.

    Raises:
        ValueError: The block does not begin with a command.
    """
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
        else:
            raise ValueError(f"{block.page}:{block.line}: a console block begins with `$ `, not with {line!r}")
    return [Step(command, tuple(shown)) for command, shown in found]


def masked(lines: Sequence[str]) -> list[str]:
    """Lines with single spaces, without dates, and without a last column of wall times."""
    return list(_without_wall(_flat(lines)))


def _flat(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        flat = " ".join(line.split())
        for pattern, word in _DATES:
            flat = pattern.sub(word, flat)
        yield flat


def _without_wall(lines: Iterator[str]) -> Iterator[str]:
    """Lines without wall times: the last column of each table with a heading that ends with `wall`."""
    inside = False
    for line in lines:
        inside = bool(line) and (inside or line.split()[-1] == "wall")
        yield line.rpartition(" ")[0] if inside else line


def difference(shown: Sequence[str], printed: Sequence[str]) -> str:
    """First passage of the page that the output lacks; empty if the output is as the page shows it."""
    wanted, found = _ended(masked(shown)), _ended(masked(printed))
    if "..." not in wanted:
        return "" if wanted == found else _unlike(wanted, found)
    place = 0
    passages = _passages(wanted)
    for number, passage in enumerate(passages):
        places = range(place, len(found) - len(passage) + 1)
        if number == 0:
            places = places[:1]
        elif number == len(passages) - 1:
            places = places[-1:]
        at = next((start for start in places if found[start : start + len(passage)] == passage), None)
        if at is None:
            return _unlike(passage, found[place:])
        place = at + len(passage)
    return ""


def _passages(lines: Sequence[str]) -> list[list[str]]:
    passages: list[list[str]] = [[]]
    for line in lines:
        if line == "...":
            passages.append([])
        else:
            passages[-1].append(line)
    return passages


def _ended(lines: list[str]) -> list[str]:
    """Lines without the empty ones at the end."""
    while lines and not lines[-1]:
        lines = lines[:-1]
    return lines


def _unlike(wanted: Sequence[str], found: Sequence[str]) -> str:
    joined = "\n".join
    return f"the page shows\n{joined(wanted)}\n\nand the command prints\n{joined(found)}"
