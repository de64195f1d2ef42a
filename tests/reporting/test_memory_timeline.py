"""Drawing of the memory inside an iteration, read back from its characters and its XML."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.lane.memory.recording import Point
from ecoshare.reporting.memory_timeline import BLOCKS, columns, svg, terminal
from tests.reporting.profiles import MIB, NOTHING_KNOWN, TIMELINE, timed

GIB = 1 << 30
HEIGHT = 8
LEVELS = "▁▂▃▄▅▆▇"
HOSTILE = "<script>&\"'[red]$x^2$ \x1b[31m\n\u202e名"

timelines = st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 1 << 41)), min_size=1, max_size=40).map(
    lambda points: tuple(
        (at / 1e7 if index else 0.0, level)
        for index, (at, level) in enumerate(sorted(points, key=lambda point: point[0]))
    )
)
"""Timelines in which several points may have one time, and all may be at 0."""


def area(lines: list[str]) -> list[str]:
    """Rows of the area without the axis, padded to one width."""
    width = len(lines[HEIGHT].split("└")[1])
    return [re.split("[│┤]", line, maxsplit=1)[1].ljust(width) for line in lines[:HEIGHT]]


def eighths(lines: list[str]) -> list[int]:
    """Height of each column."""
    worth = {" ": 0, "╌": 0, "▒": 8, "█": 8} | {char: index + 1 for index, char in enumerate(LEVELS)}
    return [sum(worth[char] for char in column) for column in zip(*area(lines), strict=True)]


@given(timelines, st.integers(30, 200))
def test_the_highest_cell_is_where_the_peak_is(timeline: tuple[Point, ...], width: int) -> None:
    drawn = eighths(terminal(timeline, width, HEIGHT))
    end_s = timeline[-1][0]
    peak = max(level for _, level in timeline)
    assert max(drawn) == (8 * HEIGHT if peak else 0), "the peak is not at the top"
    for at_s, level in timeline:
        if level == peak and end_s > 0:
            column = min(at_s / end_s * len(drawn), len(drawn) - 1)
            # An edge is not exact in binary: a peak there may be in the column on its either side.
            assert max(drawn) in {drawn[int(column * (1 - 1e-12))], drawn[int(column)]}


@given(timelines, st.integers(1, 60))
def test_a_column_shows_the_most_within_its_time(timeline: tuple[Point, ...], count: int) -> None:
    found = columns(timeline, count)
    end_s = timeline[-1][0]
    slack_s = 1e-9 * end_s  # edges are not exact in binary
    for index, most in enumerate(found):
        from_s, to_s = end_s * index / count, end_s * (index + 1) / count
        inside = [level for at_s, level in timeline if from_s + slack_s < at_s < to_s - slack_s]
        around = [level for at_s, level in timeline if from_s - slack_s <= at_s <= to_s + slack_s]
        carried = [level for at_s, level in timeline if at_s <= from_s + slack_s][-1]
        before = [level for at_s, level in timeline if at_s < from_s - slack_s][-1:]
        assert most >= max([carried, *inside]), "a level at the time is higher"
        assert most in [carried, *around, *before], "a level that was not there at the time"
    assert max(found) == max(level for _, level in timeline)


def test_a_level_that_ends_at_an_edge_is_not_in_the_next_column() -> None:
    assert columns(((0.0, 5), (1.0, 1), (2.0, 1)), 2) == [5, 1]
    assert columns(((0.0, 1), (1.0, 9), (1.0, 2), (2.0, 2)), 2) == [1, 9], "an instant's peak is lost"


@given(timelines, st.integers(24, 200), st.booleans())
def test_no_line_is_too_long_and_all_is_in_the_promised_characters(
    timeline: tuple[Point, ...], width: int, blocks: bool
) -> None:
    lines = terminal(timeline, width, HEIGHT, blocks=blocks)
    assert max(map(len, lines)) <= width
    text = "".join(lines)
    assert all(char.isascii() or (blocks and char in BLOCKS) for char in text)


@given(timelines)
def test_solid_is_only_what_is_beyond_the_boundary(timeline: tuple[Point, ...]) -> None:
    rows = area(terminal(timeline, 80, HEIGHT))
    levels = columns(timeline, len(rows[0]))
    for column, level in zip(zip(*rows, strict=True), levels, strict=True):
        assert ("█" in column) <= (level > timeline[0][1])


def test_boundary_and_peak_are_labelled_in_their_rows() -> None:
    lines = terminal(TIMELINE, 80, HEIGHT)
    assert lines[0].startswith("3.22 GiB ┤") and lines[HEIGHT].startswith("     0 B └")
    (boundary,) = [line for line in lines if line.startswith("1.17 GiB ┤")]
    assert "▒" in boundary and "╌" in boundary and "█" not in boundary
    assert lines[HEIGHT + 1].split() == ["0", "s", "6.2", "ms", "12.4", "ms"]
    assert "Peak 3.22 GiB at 4 ms: 2.05 GiB beyond" in " ".join(lines)


def test_a_small_swing_of_much_is_seen_and_the_cut_axis_is_told() -> None:
    lines = terminal(((0.0, 80 * GIB), (0.001, 80 * GIB + MIB), (0.002, 80 * GIB)), 80, HEIGHT)
    assert lines[0].lstrip().startswith("+1 MiB ┤") and any(line.lstrip().startswith("80 GiB ┤") for line in lines)
    assert "does not begin at 0" in " ".join(" ".join(lines).split())
    assert len(set(eighths(lines))) == 2


def test_what_cannot_be_drawn_is_said() -> None:
    assert terminal((), 80, HEIGHT) == ["No timeline is known."]
    one = terminal(((0.0, GIB),), 80, HEIGHT)
    assert set(eighths(one)) == {8 * HEIGHT} and one[HEIGHT + 1].split() == ["0", "s"]
    assert "No timeline is known: the script uses a profiler itself" in "".join(texts(svg(NOTHING_KNOWN)))


def texts(drawing: str) -> list[str]:
    """Text in an SVG."""
    return ["".join(each.itertext()) for each in ElementTree.fromstring(drawing).iter() if each.tag.endswith("}text")]


def test_the_svg_is_text_alone_and_always_the_same() -> None:
    drawing = svg(timed(TIMELINE))
    read = texts(drawing)
    assert "Memory inside an iteration of resnet" in read and "NVIDIA H200 (cuda:0)" in read
    assert "peak 3.22 GiB at 4 ms" in read and "tensors alive, GiB" in read
    assert any("alive between iterations" in line for line in read) and any("ephemeral" in line for line in read)
    assert drawing == svg(timed(TIMELINE))
    assert "<!DOCTYPE" not in drawing and "20" + "26-" not in drawing
    named = re.sub(r'xmlns(:\w+)?="[^"]*"', "", drawing)
    assert not re.search(r"//\w|href=\"[^#]", named), "something elsewhere is referred to"


def test_hostile_names_stay_text() -> None:
    profile = timed(TIMELINE, HOSTILE)
    drawing = svg(profile)
    assert "<script>" not in drawing and "\x1b" not in drawing
    assert any("<script>&\"'[red]$x^2$ \\x1b[31m \\u202e名" in line for line in texts(drawing))


@pytest.mark.parametrize(
    "timeline",
    [
        ((0.0, GIB),),
        ((0.0, 0), (1.0, 0)),
        ((0.0, 300), (2e-6, 700), (9e-6, 300)),
        ((0.0, 80 * GIB), (0.001, 80 * GIB + MIB), (90.0, 80 * GIB)),
        tuple((index * 1e-4, (index * 7919) % 400 * MIB) for index in range(400)),
    ],
)
def test_timelines_of_all_magnitudes_are_drawn(timeline: tuple[Point, ...]) -> None:
    assert any(line.startswith("Peak ") for line in texts(svg(timed(timeline))))
