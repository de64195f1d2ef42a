"""Text of foreign programs, as it is shown."""

from __future__ import annotations

import pytest

from ecoshare.base.printable import last_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        (" \n\t\n", ""),
        ("Traceback:\n  File x\nKeyError: 'a'\n\n", "KeyError: 'a'"),
        ("one\n  two  \r\n", "two"),
        ("\x1b[31mred", r"\x1b[31mred"),
    ],
)
def test_the_last_line_is_the_last_that_is_not_blank(text: str, shown: str) -> None:
    assert last_line(text) == shown
