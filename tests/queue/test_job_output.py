"""The output of a job as a stream that begins with the last lines."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ecoshare.queue.job_output import output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "lines", "expected"),
    [
        ("", 0, "new\n"),
        ("", 1, "new\n"),
        ("a\nb\n", 0, "new\n"),
        ("a\nb", 0, "new\n"),
        ("a\nb\n", 1, "b\nnew\n"),
        ("a\nb", 1, "bnew\n"),
        ("a\nb\n", 9, "a\nb\nnew\n"),
        ("a\nb\n", None, "a\nb\nnew\n"),
    ],
)
def test_no_byte_that_comes_later_is_lost(tmp_path: Path, before: str, lines: int | None, expected: str) -> None:
    path = tmp_path / "stdout.log"
    path.write_text(before)
    looks = 0

    def is_over() -> bool:
        nonlocal looks
        looks += 1
        if looks == 2:  # the file was opened, and read to its end
            with path.open("a") as file:
                file.write("new\n")
        return looks > 2

    async def followed() -> bytes:
        return b"".join([chunk async for chunk in output(path, lines, is_over)])

    assert asyncio.run(followed()).decode() == expected
