"""Embedding of spaces with many knobs into a few dimensions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner import ConstrainedTuner, Knob, Limit, Setting, Space, energy
from tuner.embedding import EmbeddedSpace, bucketised, embedded
from tuner.space import Value

KNOBS = [
    Knob(f"knob{place}", tuple(float(value) for value in range(1, 4 + 3 * place)), special=special)
    for place, special in enumerate([{}, {"auto": 1.0}, {}, {"off": 5.0}, {}, {"auto": 18.0, "off": 1.0}])
]
DEFAULT: Setting = {"knob0": 2.0, "knob1": "auto", "knob2": 9.0, "knob3": 7.0, "knob4": 15.0, "knob5": "off"}


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Knob], dict[str, Value], EmbeddedSpace]:
    """Strategy for knobs in any order of their values, a default, and a space with few points."""
    knobs: list[Knob] = []
    for place in range(draw(st.integers(2, 7))):
        values = draw(st.lists(st.floats(0.5, 1e4), min_size=1, max_size=20, unique=True))
        names = draw(st.lists(st.sampled_from(["auto", "off"]), unique=True))
        knobs.append(
            Knob(f"knob{place}", tuple(values), special={name: draw(st.sampled_from(values)) for name in names})
        )
    default: dict[str, Value] = {}
    for knob in knobs:
        choices: list[Value] = [*knob.values, *knob.special]
        default[knob.name] = draw(st.sampled_from(choices))
    dimensions, levels = draw(st.integers(1, 7)), draw(st.integers(4, 7))
    share = draw(st.one_of(st.none(), st.floats(0.0, 0.6)))
    space = embedded(knobs, default, dimensions, levels, share, draw(st.integers(0, 99)), most=300)
    return knobs, default, space


def dimensions_of(space: EmbeddedSpace) -> int:
    return max(space.projection.dimension) + 1


@given(cases())
def test_settings_are_of_the_knobs_and_the_default_is_the_first(
    case: tuple[list[Knob], dict[str, Value], EmbeddedSpace],
) -> None:
    knobs, default, space = case
    assert space.settings[0] == default and 1 <= len(space) <= 301
    for setting in space.settings:
        for knob in knobs:
            assert setting[knob.name] in (*knob.values, *knob.special)


@given(cases())
def test_both_extremes_of_each_dimension_are_reached(
    case: tuple[list[Knob], dict[str, Value], EmbeddedSpace],
) -> None:
    """The reached settings include both ends of each knob unless it has a special value beyond its end."""
    knobs, _, space = case
    for place, knob in enumerate(knobs):
        ladder = space.projection.ladders[place]
        found = {setting[knob.name] for setting in space.settings}
        assert {ladder[0], ladder[-1]} <= found
        assert {knob.number(ladder[0]), knob.number(ladder[-1])} == {min(knob.values), max(knob.values)}


@given(cases(), st.data())
def test_along_one_dimension_its_knobs_move_one_way_and_no_other_moves(
    case: tuple[list[Knob], dict[str, Value], EmbeddedSpace], data: st.DataObject
) -> None:
    knobs, _, space = case
    projection = space.projection
    levels, count = len(projection.ladders[0]), dimensions_of(space)
    point = data.draw(st.lists(st.integers(0, levels - 1), min_size=count, max_size=count))
    along = data.draw(st.integers(0, count - 1))
    line = [projection.setting([*point[:along], level, *point[along + 1 :]]) for level in range(levels)]
    for place, knob in enumerate(knobs):
        moved = np.diff([knob.number(setting[knob.name]) for setting in line])
        if projection.dimension[place] == along:
            assert (moved * projection.sign[place] >= 0.0).all()
            assert moved.any() or min(knob.values) == max(knob.values)
        else:
            assert len({setting[knob.name] for setting in line}) == 1


@given(st.floats(0.05, 0.6), st.integers(6, 15), st.integers(0, 99))
def test_special_values_have_their_share(share: float, levels: int, seed: int) -> None:
    """Each dimension has a knob that differs on every rung, so no setting is removed as a duplicate."""
    wide = [Knob(f"wide{place}", tuple(float(value) for value in range(1, 41))) for place in range(7)]
    default = {**DEFAULT, **{knob.name: 20.0 for knob in wide}}
    space = embedded([*KNOBS, *wide], default, 2, levels, share, seed)
    for knob in KNOBS:
        special = np.mean([setting[knob.name] in knob.special for setting in space.settings[1:]])
        if knob.special:
            least = len(knob.special) / levels
            assert special == pytest.approx(max(share, least), abs=0.5 / levels + 2.0 / len(space))
            assert {setting[knob.name] for setting in space.settings[1:]} >= set(knob.special)
        else:
            assert special == 0.0


def test_without_a_share_special_values_are_as_frequent_as_any_other() -> None:
    threads = Knob("threads", tuple(float(value) for value in range(1, 30)), special={"auto": 29.0})
    depth = Knob("depth", tuple(float(value) for value in range(1, 31)))
    space = embedded([threads, depth], {"threads": 3.0, "depth": 3.0}, 2, 30, special_share=None)
    values = [setting["threads"] for setting in space.settings]
    places: list[Value] = [*threads.values, "auto"]
    assert {values.count(value) for value in places} == {30}
    coarse = embedded([threads, depth], {"threads": 3.0, "depth": 3.0}, 2, 6, special_share=None)
    assert len({setting["threads"] for setting in coarse.settings}) == 7, "a rung each, and the default's"


def test_a_special_value_lies_beside_the_number_that_it_is_like() -> None:
    space = embedded(KNOBS, DEFAULT, 6, 11, most=400)
    ladders = dict(zip((knob.name for knob in KNOBS), space.projection.ladders, strict=True))
    assert ladders["knob1"][:3] == ("auto", "auto", 1.0)
    assert ladders["knob5"][0] == "off" and ladders["knob5"][-1] == "auto"
    place = ladders["knob3"].index("off")
    assert place > 0 and KNOBS[3].number(ladders["knob3"][place - 1]) <= 5.0


def test_equal_seeds_give_equal_spaces_and_others_tie_other_knobs() -> None:
    one, same, other = (embedded(KNOBS, DEFAULT, 2, seed=seed) for seed in (4, 4, 5))
    assert one.settings == same.settings and one.projection == same.projection
    assert one.projection != other.projection


def test_every_dimension_has_its_knobs_and_a_large_grid_is_cut() -> None:
    space = embedded(KNOBS, DEFAULT, 4, most=500)
    ties = [space.projection.dimension.count(each) for each in range(4)]
    assert sorted(ties) == [1, 1, 2, 2] and len(space) <= 501
    apart = embedded(KNOBS, DEFAULT, 99, most=500)
    assert sorted(apart.projection.dimension) == list(range(6))


def test_a_dimension_is_as_long_as_one_knob() -> None:
    knobs = [Knob(f"knob{place}", (1.0, 2.0, 4.0, 8.0)) for place in range(6)]
    default = {knob.name: 1.0 for knob in knobs}
    space = embedded(knobs, default, 2, 4)
    low, high = (space.index(space.projection.setting(point)) for point in ((0, 0), (3, 0)))
    assert np.linalg.norm(space.features[low] - space.features[high]) == pytest.approx(1.0)
    plain = Space(knobs, space.settings)
    assert np.linalg.norm(plain.features[low] - plain.features[high]) == pytest.approx(3.0**0.5)


@given(st.lists(st.floats(0.1, 1e4), min_size=1, max_size=40, unique=True), st.integers(3, 12), st.data())
def test_a_bucketised_knob_keeps_its_ends_and_the_default(values: list[float], most: int, data: st.DataObject) -> None:
    keep = data.draw(st.sampled_from(values))
    knob = bucketised(Knob("knob", tuple(values), special={"auto": values[0]}), most, keep)
    assert {min(values), max(values), keep} <= set(knob.values) <= set(values)
    assert len(set(knob.values)) == len(knob.values) == min(most, len(values))
    assert "auto" in knob.special


def test_bucketised_values_lie_at_even_distances() -> None:
    knob = Knob("clock", tuple(float(value) for value in range(1, 102)))
    assert bucketised(knob, 5).values == (1.0, 26.0, 51.0, 76.0, 101.0)
    assert bucketised(knob, 5, 30.0).values == (1.0, 30.0, 51.0, 76.0, 101.0)
    assert bucketised(knob, 200) is knob


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"dimensions": 0}, "a dimension or more"),
        ({"levels": 1}, "two levels or more"),
        ({"levels": 3}, "3 levels are too few for knob5: its ends and special values need 4"),
        ({"most": 3}, "no fewer points than levels"),
    ],
)
def test_too_small_embeddings_are_refused(how: dict[str, int], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        embedded(KNOBS, DEFAULT, **how)


def test_a_default_that_is_no_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="one value for each of knob0, knob1"):
        embedded(KNOBS, {"knob0": 2.0})
    with pytest.raises(ValueError, match=r"knob0 cannot be 2\.5"):
        embedded(KNOBS, {**DEFAULT, "knob0": 2.5})
    with pytest.raises(ValueError, match="too few for both ends of knob2 and its default"):
        bucketised(KNOBS[2], 2, keep=4.0)


@pytest.mark.slow
def test_twelve_knobs_are_tuned_in_an_embedded_space() -> None:
    """With two knobs that a limit sets against each other, the tuner makes progress and keeps the limit."""
    knobs = [Knob(f"knob{place}", tuple(float(value) for value in range(1, 33))) for place in range(12)]
    default = {knob.name: 16.0 for knob in knobs}
    space = embedded(knobs, default, 3, 7, seed=1)
    ties = space.projection.dimension
    other = next(place for place, dimension in enumerate(ties) if dimension != ties[0])
    tuned = ConstrainedTuner(space, energy({"time_s": 1.0}), [Limit("time_s", 1.1)], default, plain=True)
    for _ in range(12):
        setting = tuned.ask()
        fast, hungry = space.numbers[space.index(setting)][[0, other]] / 16.0
        tuned.tell(setting, {"power_w": 100.0 * hungry**0.5, "time_s": fast**-0.2})
    best = tuned.best()
    assert best is not None and best.objective < 60.0, "100 at the default, about 25 at best"
    assert (space.numbers[space.index(best.setting)][0] / 16.0) ** -0.2 <= 1.1
