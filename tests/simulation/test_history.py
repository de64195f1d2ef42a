"""History of past jobs: every number counts, and other texts are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.errors import InvalidJobFile, UsageError
from ecoshare.simulation.traces.history import read
from tests.simulation.trace_files import written


@pytest.mark.parametrize(
    ("text", "past_gpu_s"),
    [
        ("gpu_s\n3.5\n\n 0 \r\n1e6\n", (3.5, 0.0, 1e6)),
        ("7\n8", (7.0, 8.0)),
        ("\ufeff7\n", (7.0,)),
        ("seconds of GPUs\n", ()),
        ("", ()),
    ],
)
def test_a_line_is_a_number_and_a_first_line_of_words_is_passed_over(
    tmp_path: Path, text: str, past_gpu_s: tuple[float, ...]
) -> None:
    assert read(written(tmp_path, text)) == past_gpu_s


@pytest.mark.parametrize("wrong", ["x", "-1", "nan", "inf", "1,5", "1_0"])
def test_a_line_that_is_no_number_is_told(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(InvalidJobFile) as caught:
        read(written(tmp_path, f"gpu_s\n1\n {wrong}\n2\n"))
    (mistake,) = caught.value.mistakes
    assert (mistake.line, mistake.what) == (3, f"{wrong!r} is not a number of seconds")


def test_a_number_below_0_is_no_line_of_words(tmp_path: Path) -> None:
    with pytest.raises(InvalidJobFile, match=":1:1: '-3' is not a number of seconds"):
        read(written(tmp_path, "-3\n4\n"))


def test_twenty_mistakes_are_enough(tmp_path: Path) -> None:
    with pytest.raises(InvalidJobFile) as caught:
        read(written(tmp_path, "x\n" * 50))
    assert len(caught.value.mistakes) == 20


def test_a_history_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read(tmp_path / "none.txt")
    (tmp_path / "binary").write_bytes(b"1\n\xff")
    with pytest.raises(UsageError, match="no text") as caught:
        read(tmp_path / "binary")
    assert "GPU-seconds a line" in caught.value.hint
