"""Lays out the tables of the command line for terminals of any width, and for pipes.

Numbers are never cut. If a terminal is too narrow, names are first cut in their middle down to `NAME_LIMIT`. Then
lesser columns are dropped, and then names are cut further. A pipe gets everything: nothing is cut or broken over lines,
unless COLUMNS in the environment gives the width of the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ecoshare.reporting.figures import broken, can_show

NAME_LIMIT = 32
"""Terminal cells that a name keeps until all lesser columns are dropped."""

_LEAST_NAME, _LEAST_PROSE = 8, 16
_HEADING = "bold"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table.

    Attributes:
        heading: Heading, in one line or several; None if the table has no headings.
        cells: Contents from top to bottom.
        right: Whether the column is aligned on the right, like numbers.
        lesser: 0 for a column that always stays. Among the others, the largest number is dropped first.
        is_name: Whether cells may be cut in their middle.
        is_prose: Whether cells may be broken over lines, between words.
    """

    heading: Text | None
    cells: Sequence[Text]
    right: bool = False
    lesser: int = 0
    is_name: bool = False
    is_prose: bool = False

    @property
    def width(self) -> int:
        """Width of the whole column, in terminal cells."""
        texts = [text.plain for text in (self.heading, *self.cells) if text is not None]
        return max((cell_len(line) for text in texts for line in text.split("\n")), default=0)

    @property
    def longest_word(self) -> int:
        """Width of the longest word in the column, in terminal cells."""
        texts = [text.plain for text in (self.heading, *self.cells) if text is not None]
        return max((cell_len(word) for text in texts for word in text.split()), default=0)


def print_columns(columns: Sequence[TableColumn], console: Console, gap: int = 2) -> None:
    """Print a table: at most as wide as the terminal, in a pipe as wide as it needs."""
    for line in laid_out(columns, room_of(console), console.encoding, gap):
        console.print(line, soft_wrap=True)


def laid_out(columns: Sequence[TableColumn], room: int | None, encoding: str = "utf-8", gap: int = 2) -> list[Text]:
    """The lines of a table.

    Args:
        room: Width of a line in terminal cells; None for no limit.
        encoding: Encoding of the output.
    """
    placed = fitted(columns, room, gap)
    mark = "…" if can_show("…", encoding) else "..."

    def cells_of(texts: Sequence[Text | None]) -> list[list[Text]]:
        last = len(placed) - 1
        return [
            _lines(column, text, width, mark, place == last)
            for place, ((column, width), text) in enumerate(zip(placed, texts, strict=True))
        ]

    lines = []
    heads = cells_of([column.heading for column, _ in placed])
    most = max(map(len, heads), default=0)
    for line in zip(*([Text()] * (most - len(head)) + head for head in heads), strict=True):
        lines.append(_joined([Text(each.plain, style=_HEADING) for each in line], placed, gap))
    for row in zip(*(column.cells for column, _ in placed), strict=True):
        lines += [_joined(line, placed, gap) for line in zip_longest(*cells_of(row), fillvalue=Text())]
    return lines


def room_of(console: Console) -> int | None:
    """Width of a line in terminal cells; None if the output is piped and no width was given."""
    # If this stream is a pipe, rich takes the width of another stream's terminal. Only a width that was given counts.
    given: int | None = console._width
    return console.width if console.is_terminal or given is not None else None


def fitted(columns: Sequence[TableColumn], room: int | None, gap: int) -> list[tuple[TableColumn, int]]:
    """The columns for which there is room, each with its width."""
    shown = [(column, column.width) for column in columns]
    if room is None:
        return shown
    while _needed(shown, NAME_LIMIT, gap) > room and any(column.lesser for column, _ in shown):
        goes = max(column.lesser for column, _ in shown)
        shown = [pair for pair in shown if pair[0].lesser < goes]
    limits = range(NAME_LIMIT, _LEAST_NAME - 1, -1)
    limit = next((each for each in limits if _needed(shown, each, gap) <= room), _LEAST_NAME)
    left = max(0, room - _needed(shown, limit, gap))
    widths = [_least(column, whole, limit) for column, whole in shown]
    for place, (column, whole) in enumerate(shown):  # names get the cells that are left, from the first column on
        more = min(left, whole - widths[place]) if column.is_name else 0
        widths[place] += more
        left -= more
    while left and (short := [place for place, (_, whole) in enumerate(shown) if widths[place] < whole]):
        widths[min(short, key=lambda place: widths[place])] += 1  # then all prose alike
        left -= 1
    return [(column, width) for (column, _), width in zip(shown, widths, strict=True)]


def middle(text: Text, width: int, mark: str = "…") -> Text:
    """The text in at most `width` cells. A longer text loses its middle, since names differ at their ends."""
    plain = text.plain
    if cell_len(plain) <= width:
        return text
    room = max(width - cell_len(mark), 1)
    tail = _beginning(plain[::-1], room // 2)[::-1]
    return Text(_beginning(plain, room - room // 2) + mark + tail, style=text.style)


def _needed(shown: Sequence[tuple[TableColumn, int]], names: int, gap: int) -> int:
    return sum(_least(column, whole, names) for column, whole in shown) + gap * (len(shown) - 1)


def _least(column: TableColumn, whole: int, names: int) -> int:
    """Least width of a column if names have at most `names` cells."""
    if column.is_name:
        return min(whole, names)
    return min(whole, max(_LEAST_PROSE, min(column.longest_word, names))) if column.is_prose else whole


def _beginning(text: str, width: int) -> str:
    """Beginning of the text, at most `width` cells wide."""
    while cell_len(text) > width:
        text = text[: min(width, len(text) - 1)]
    return text


def _lines(column: TableColumn, cell: Text | None, width: int, mark: str, is_last: bool) -> list[Text]:
    """Lines of a cell or heading. A word that is too long for the last column is left to the terminal."""
    lines = [] if cell is None else list(cell.split("\n", allow_blank=True))
    if column.is_prose:
        parts = [part for line in lines for part in broken(line, width)]
        return parts if is_last else [middle(part, width, mark) for part in parts]
    return [middle(line, width, mark) for line in lines] if column.is_name else lines


def _joined(line: Sequence[Text], placed: Sequence[tuple[TableColumn, int]], gap: int) -> Text:
    joined = Text()
    for text, (column, width) in zip(line, placed, strict=True):
        space = " " * max(0, width - text.cell_len)
        joined.append(space if column.right else "").append_text(text)
        joined.append(("" if column.right else space) + " " * gap)
    joined.rstrip()
    return joined
