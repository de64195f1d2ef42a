"""Links of devices in words."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.device import ACROSS_NODES, NUMA_NODE, ONE_BOARD, XGMI, over_nvlinks
from ecoshare.reporting.tables.device_table import gang_words, group_lines, nearness_words

Near = dict[tuple[int, int], int]


def links(near: Near, count: int) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {f"cuda:{number}": {} for number in range(count)}
    for (one, other), nearness in near.items():
        found[f"cuda:{one}"][f"cuda:{other}"] = found[f"cuda:{other}"][f"cuda:{one}"] = nearness
    return found


def every(count: int, nearness: int) -> Near:
    return dict.fromkeys(combinations(range(count), 2), nearness)


@pytest.mark.parametrize(
    ("near", "count", "lines"),
    [
        (
            every(4, ACROSS_NODES) | {(0, 1): over_nvlinks(4), (2, 3): over_nvlinks(1)},
            4,
            ["cuda:0 and cuda:1: 4 NVLinks", "cuda:2 and cuda:3: 1 NVLink", "all other pairs: across NUMA nodes"],
        ),
        (every(4, over_nvlinks(18)), 4, ["cuda:0, cuda:1, cuda:2 and cuda:3: 18 NVLinks"]),
        (every(2, XGMI), 2, ["cuda:0 and cuda:1: over XGMI"]),
        (
            {(0, 1): ONE_BOARD, (1, 2): NUMA_NODE},
            3,
            ["cuda:0 and cuda:1: on one board", "cuda:1 and cuda:2: in one NUMA node"],
        ),
        (
            every(3, ACROSS_NODES) | {(0, 1): over_nvlinks(4)},
            3,
            ["cuda:0 and cuda:1: 4 NVLinks", "all other pairs: across NUMA nodes"],
        ),
        ({}, 2, []),
    ],
)
def test_each_group_has_a_line(near: Near, count: int, lines: list[str]) -> None:
    assert list(group_lines(links(near, count))) == lines


@given(
    st.integers(2, 6).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.fixed_dictionaries({}, optional={pair: st.integers(1, 4) for pair in combinations(range(count), 2)}),
        )
    )
)
def test_each_known_pair_is_in_a_line_with_its_own_words(drawn: tuple[int, Near]) -> None:
    count, near = drawn
    told: dict[tuple[int, ...], str] = {}
    for line in group_lines(links(near, count)):
        names, _, words = line.partition(": ")
        if names == "all other pairs":
            told |= {pair: words for pair in combinations(range(count), 2) if pair not in told}
            continue
        group = sorted(int(name.removeprefix("cuda:")) for name in names.replace(" and ", ", ").split(", "))
        told |= dict.fromkeys(combinations(group, 2), words)
    assert told == {pair: nearness_words(nearness) for pair, nearness in near.items()}


def test_a_gang_names_its_worst_and_its_best_link() -> None:
    mixed = links(every(3, ACROSS_NODES) | {(0, 1): over_nvlinks(4)}, 3)
    assert gang_words(["cuda:0", "cuda:1"], mixed) == "cuda:0 and cuda:1 (4 NVLinks)"
    assert gang_words(["cuda:0", "cuda:1", "cuda:2"], mixed) == (
        "cuda:0, cuda:1 and cuda:2 (across NUMA nodes, at best 4 NVLinks)"
    )
    assert gang_words(["cuda:0", "cuda:1"], links({}, 2)) == "cuda:0 and cuda:1"
    assert nearness_words(9) == "nearness 9", "a log of another version"
