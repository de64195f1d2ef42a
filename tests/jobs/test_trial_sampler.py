"""Grids and random draws."""

from __future__ import annotations

import math
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from ecoshare.jobs.trial_sampler import Choice, Grid, Random, Range

WORDS = st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=4, unique=True)


@given(st.dictionaries(st.text("xyz", min_size=1, max_size=2), WORDS, min_size=1, max_size=3))
def test_a_grid_has_every_combination_once_in_the_order_of_nested_loops(space: dict[str, list[str]]) -> None:
    grid = Grid({name: Choice(tuple(words)) for name, words in space.items()})
    drawn = [grid.draw(number) for number in range(len(grid))]
    wanted = [tuple(zip(space, words, strict=True)) for words in product(*space.values())]
    assert drawn == wanted
    assert grid.draw(len(grid)) is None


def test_a_grid_may_be_cut_off() -> None:
    grid = Grid({"a": Choice(("1", "2", "3"))}, most=2)
    assert [grid.draw(number) for number in range(3)] == [(("a", "1"),), (("a", "2"),), None]


@given(st.integers(0, 1000), st.integers(0, 10_000), st.booleans(), st.booleans())
def test_draws_keep_their_bounds_and_are_those_of_their_number(seed: int, number: int, log: bool, whole: bool) -> None:
    """Else a resumed sweep would draw other trials than before the interruption."""
    space: dict[str, Choice | Range] = {"x": Range(2.0, 32.0, log, whole), "kind": Choice(("a", "b"))}
    (_, text), (_, kind) = Random(space, 20_000, seed).draw(number) or ()
    assert Random(space, 20_000, seed).draw(number) == (("x", text), ("kind", kind))
    assert 2.0 <= float(text) <= 32.0 and kind in "ab"
    assert not whole or text == str(int(text))


def test_a_logarithmic_range_has_as_much_of_each_decade() -> None:
    sampler = Random({"lr": Range(1e-4, 1e-1, log=True)}, 3000)
    drawn = [float((sampler.draw(number) or ())[0][1]) for number in range(3000)]
    decades = [sum(math.floor(math.log10(value)) == each for value in drawn) for each in (-4, -3, -2)]
    assert all(850 < count < 1150 for count in decades), decades


def test_each_whole_number_is_drawn() -> None:
    sampler = Random({"n": Range(1, 8, whole=True)}, 400)
    assert {(sampler.draw(number) or ())[0][1] for number in range(400)} == {str(n) for n in range(1, 9)}
