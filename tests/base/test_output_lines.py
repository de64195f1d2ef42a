"""Output of jobs as text: whatever a job writes, and however it is cut into chunks."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ecoshare.base.printable import LONGEST, OutputLines, TerminalText, shown
from ecoshare.errors import UsageError
from ecoshare.top.screens import KEPT, OutputFollower
from tests.warm import wait_for

_PIECES = st.sampled_from(
    [b"\n", b"\r", b"\r\n", b"y" * 3_000, b"\x1b[31m", b"\x1b]0;t\x07", b"\x9b", b"\xff", "ü▶".encode(), b"[b]"]
)


@given(st.lists(_PIECES | st.binary(max_size=20), max_size=30), st.integers(1, 7))
@example([b"\0", b"\r", b"\r\n"], 1)
def test_no_control_character_is_left_and_chunks_change_nothing(pieces: list[bytes], size: int) -> None:
    data = b"".join(pieces)
    whole, cut = OutputLines(), OutputLines()
    at_once = whole.take(data)
    bit_by_bit = [line for begin in range(0, len(data), size) for line in cut.take(data[begin : begin + size])]
    assert at_once == bit_by_bit and whole.unfinished == cut.unfinished
    assert all(line.isprintable() for line in (*at_once, whole.unfinished))


@given(st.lists(_PIECES | st.binary(max_size=20), max_size=30), st.integers(1, 7))
def test_a_terminal_gets_colours_and_text_alone_however_they_are_cut(pieces: list[bytes], size: int) -> None:
    data = b"".join((*pieces, b"\n"))
    cut = TerminalText()
    text = TerminalText().take(data)
    assert text == "".join(cut.take(data[begin : begin + size]) for begin in range(0, len(data), size))
    assert all(char.isprintable() or char in "\n\r\t\b" for char in text.replace("\x1b[31m", ""))


def test_colours_and_progress_bars_reach_a_terminal_and_nothing_that_acts_on_it() -> None:
    said = b"\x1b[1;31mred\x1b[0m 10 %\r20 %\x1b]52;c;eA==\x07\x1b[2J\x1bc\x9b5n\xc2\x9b5n\a\n"
    assert TerminalText().take(said) == "\x1b[1;31mred\x1b[0m 10 %\r20 %\ufffd5n\\x07\n"
    endless = TerminalText()
    assert sum(len(endless.take(b"\x1b]" + b"y" * 1_000)) for _ in range(100)) > 90_000


@pytest.mark.parametrize(
    ("line", "as_shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("10 %\r50 %\r99 %", "99 %"),
        ("dos\r", "dos"),
        ("a\tb", "a       b"),
        ("[bold]", "[bold]"),
        ("\x1b", "\\x1b"),
        ("bell\x07", "bell\\x07"),
        ("x" * (LONGEST + 1), "x" * LONGEST + "…"),
    ],
)
def test_a_line_is_shown_as_a_terminal_would_without_its_effects(line: str, as_shown: str) -> None:
    assert shown(line) == as_shown


def test_an_endless_line_takes_no_endless_memory() -> None:
    lines = OutputLines()
    for _ in range(100):
        assert lines.take(b"y" * 10_000) == []
    assert lines.unfinished == "y" * LONGEST + "…"


def test_the_last_lines_are_kept_and_an_error_is_told() -> None:
    long = OutputFollower(lambda: iter([b"line\n" * 3 * KEPT, b"last"]))
    long.begin()
    wait_for(lambda: long.state, otherwise=lambda: "")
    found, count = long.since(0)
    assert (len(found), count) == (KEPT, 3 * KEPT) and long.unfinished == "last" and long.state == "the end"
    assert long.since(count) == ([], count)

    def refuses() -> object:
        raise UsageError("there is none")

    bad = OutputFollower(refuses)  # type: ignore[arg-type]
    bad.begin()
    wait_for(lambda: bad.state, otherwise=lambda: "")
    assert bad.state == "there is none"
