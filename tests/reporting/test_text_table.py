"""Tables at several widths and in a pipe: numbers and names stay whole, and lesser columns are dropped first."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ecoshare.reporting.figures import broken, filled, say
from ecoshare.reporting.tables.text_table import NAME_LIMIT, TableColumn, laid_out, middle, print_columns

LONG = "a-job-with-a-name-that-tells-its-learning-rate-and-width-0.01-256"


def columns(*names: str) -> list[TableColumn]:
    def figures(heading: str, cell: str, lesser: int = 0) -> TableColumn:
        return TableColumn(Text(heading), [Text(cell)] * len(names), right=True, lesser=lesser)

    return [
        TableColumn(Text("job"), [Text(name) for name in names], is_name=True),
        figures("JCT", "1 min 26 s"),
        figures("queued", "22.5 s", 2),
        figures("iterations", "12345 +678 eval", 1),
        figures("energy,\nmodelled", "1.25 kJ"),
    ]


def terminal(width: int) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, highlight=False)


def pipe() -> Console:
    return Console(file=io.StringIO(), highlight=False, _environ={})


def shown(console: Console, *names: str) -> list[str]:
    print_columns(columns(*names), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(
    ("width", "headings", "name"),
    [
        (200, ["job", "JCT", "queued", "iterations", "modelled"], LONG),
        (80, ["job", "JCT", "queued", "iterations", "modelled"], middle(Text(LONG), 33).plain),
        (74, ["job", "JCT", "iterations", "modelled"], middle(Text(LONG), 35).plain),
        (60, ["job", "JCT", "modelled"], middle(Text(LONG), 38).plain),
        (40, ["job", "JCT", "modelled"], middle(Text(LONG), 18).plain),
    ],
)
def test_lesser_columns_go_before_names_are_cut_below_their_limit(width: int, headings: list[str], name: str) -> None:
    lines = shown(terminal(width), LONG, "short")
    assert lines[1].split() == headings and lines[0].split() == ["energy,"]
    assert len(lines) == 4, "a cell is folded over lines"
    assert lines[2].split()[0] == name
    assert max(map(len, lines)) <= width
    for line in lines[2:]:
        assert "1 min 26 s" in line and "1.25 kJ" in line


def test_a_pipe_gets_all_that_there_is() -> None:
    names = [LONG * 5, "short"]
    first, second = shown(pipe(), *names)[2:]
    assert first.split()[0] == names[0] and second.split()[0] == "short"
    assert (
        first.split()[1:]
        == second.split()[1:]
        == ["1", "min", "26", "s", "22.5", "s", "12345", "+678", "eval", "1.25", "kJ"]
    )


def test_a_width_in_the_environment_counts_in_a_pipe_too() -> None:
    console = Console(file=io.StringIO(), highlight=False, _environ={"COLUMNS": "60"})
    assert shown(console, LONG)[1].split() == ["job", "JCT", "modelled"]


def test_no_line_ends_with_spaces() -> None:
    for console in (pipe(), terminal(60)):
        assert not [line for line in shown(console, LONG, "b") if line != line.rstrip()]


def test_prose_is_broken_between_words_in_its_own_column() -> None:
    words = "no GPU: there is no NVIDIA driver, or it shows none\n→ jobs share the processors"
    table = [TableColumn(None, [Text("warn")]), TableColumn(None, [Text(words)], is_prose=True)]
    lines = [line.plain for line in laid_out(table, 30)]
    assert all(line.startswith(("warn  ", "      ")) and len(line) <= 30 for line in lines)
    assert " ".join(line[6:] for line in lines).split() == words.split()
    assert [line.plain for line in laid_out(table, None)] == [
        f"warn  {words.split(chr(10))[0]}",
        "      → jobs share the processors",
    ]


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z", "M"]), min_size=1, max_size=80),
    st.integers(4, 60),
)
def test_a_name_keeps_both_its_ends(name: str, width: int) -> None:
    cut = middle(Text(name), width).plain
    assert cell_len(cut) <= width
    if cell_len(name) <= width:
        assert cut == name
    else:
        head, _, tail = cut.partition("…") if "…" not in name else (cut[:1], "", cut[-1:])
        assert name.startswith(head) and name.endswith(tail)


def test_an_encoding_without_the_ellipsis_gets_dots() -> None:
    (line,) = laid_out([TableColumn(None, [Text(LONG)], is_name=True)], 20, "ascii")
    assert "..." in line.plain and line.plain.isascii() and len(line.plain) == 20


def test_names_have_their_limit_where_several_share_a_line() -> None:
    table = [TableColumn(None, [Text(LONG)], is_name=True), TableColumn(None, [Text(LONG)], is_name=True)]
    (line,) = laid_out(table, 2 * NAME_LIMIT + 2)
    assert [len(word) for word in line.plain.split()] == [NAME_LIMIT, NAME_LIMIT]


@given(
    st.lists(st.text("abc-/", min_size=1, max_size=30), min_size=1, max_size=30), st.integers(10, 80), st.integers(0, 4)
)
@example(["a", "aaaaaaaa"], 10, 1)
def test_sentences_break_between_words_and_lose_none(words: list[str], width: int, indent: int) -> None:
    lines = [line.plain for line in broken(Text(" " * indent + " ".join(words)), width)]
    assert " ".join(lines).split() == words, "a word is broken or lost"
    below = indent + 2 if indent else 0
    for line in lines:
        last = line.rindex(line.split()[-1])
        assert len(line) <= width or last <= below, "a line is too long, and its last word could begin further left"
    assert all(re.match(r" *", line).end() == indent + 2 for line in lines[1:] if indent)  # type: ignore[union-attr]


def test_columns_of_prose_share_the_room_and_stay_below_their_headings() -> None:
    name = "transformer-0123456789ab"
    cells = [Text("--steps 120 --ms 15 and more"), Text(name)]
    table = [TableColumn(Text(f"{name} 2026-11-23"), cells, is_prose=True) for _ in range(3)]
    lines = [line.plain for line in laid_out(table, 80)]
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == [name] * 3
    starts = {match.start() for line in lines for match in re.finditer(r"(?:(?<=  )|^)\S", line)}
    assert len(starts) == 3, "cells are not below their headings"


def test_a_number_stays_with_its_unit() -> None:
    text = Text("the first within 5 % of the best took 1.25 kJ (8.07 % more)")
    for width in range(10, 60):
        for line in broken(text, width):
            assert not re.match(r" *(%|kJ)", line.plain), (width, line.plain)


def test_what_is_told_of_a_time_stands_beside_it() -> None:
    text = "  3.7 s to 3.8 s  one, two and three: expected at 0.27 of their speeds alone"
    first, *rest = [line.plain for line in broken(Text(text), 50)]
    assert first.startswith("  3.7 s to 3.8 s  one,") and rest
    assert all(line.startswith(" " * 18) and line[18] != " " for line in rest)


def test_a_sentence_in_a_pipe_is_one_line() -> None:
    words = "word " * 100 + "/a/path/that/is/copied"
    console = pipe()
    say(console, words)
    assert isinstance(console.file, io.StringIO) and console.file.getvalue() == words + "\n"
    assert filled(words, pipe()) == words
    assert max(map(len, filled(words, terminal(40)).splitlines())) <= 40
