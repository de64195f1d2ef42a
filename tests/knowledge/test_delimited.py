"""A cell's column is found for any text in the cells before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.errors import UsageError
from ecoshare.knowledge.advisers.delimited import begin_of, lines_of, quoted


@pytest.mark.parametrize(
    ("text", "cell", "place"),
    [
        ("a,bc,d\n", 0, (0, 1)),
        ("a,bc,d\n", 2, (0, 6)),
        ('"a,b",c\n', 1, (0, 7)),
        ('"a\n,b",c\n', 1, (1, 5)),
        ('"a ""b"", c",d\n', 1, (0, 14)),
        ("a,", 1, (0, 3)),
    ],
)
def test_a_cell_begins_after_the_delimiters_before_it(text: str, cell: int, place: tuple[int, int]) -> None:
    assert begin_of(text.splitlines(keepends=True), cell, ",") == place


def test_quotation_marks_may_mean_nothing() -> None:
    line = 'run "a\tb\n'
    assert begin_of([line], 1, "\t", quotes=False) == (0, 8)
    assert begin_of([line], 1, "\t") == (0, 1), "the record's begin, where no such cell is found"


def test_lines_keep_their_ends_and_lose_the_mark_of_their_encoding(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("\ufeffa\r\nb\x0cc\n\nd".encode())
    assert lines_of(tmp_path / "t.csv", "") == ["a\n", "b\x0cc\n", "\n", "d"]


def test_a_file_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xff" * ((2 << 20) + 1))
    with pytest.raises(UsageError, match="has more than 2 MiB") as caught:
        lines_of(path, "a text", (2 << 20, "make it shorter"))
    assert caught.value.hint == "make it shorter"


def test_long_and_empty_cells_are_shown_short() -> None:
    assert [quoted(text) for text in ("", " ", "x ", "y" * 60)] == ["nothing", "nothing", "'x '", repr("y" * 60)]
    assert quoted("y" * 61) == repr("y" * 57 + "...")


def test_a_device_is_no_text_which_shows_at_its_begin() -> None:
    """Before, a GiB of it was read first."""
    with pytest.raises(UsageError, match=r"/dev/zero is no text \(UTF-8\): byte 1$"):
        lines_of(Path("/dev/zero"), "a text")
