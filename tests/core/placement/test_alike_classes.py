"""Scripts that were never measured look alike: two of them stand for all in a question, and nothing is lost by that."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.class_profile import Solo
from ecoshare.base.measurement import ColocationMeasurement
from ecoshare.core.commands import AskInterference
from ecoshare.core.placement.colocation_estimates import ColocationEstimates
from ecoshare.knowledge.advisers.interference_adviser import foresee

MEASURED = {
    "busy": Solo("busy.py", 0.1, 250.0, 50.0, 0.9, 0.6),
    "waits": Solo("waits.py", 0.3, 120.0, 50.0, 0.3, 0.1),
}
SEEN = (ColocationMeasurement(("busy", "waits"), (0.7, 0.9), 260.0),)


def estimates(names: Sequence[str]) -> ColocationEstimates:
    """Two measured classes, and others of one script that were not."""
    made = ColocationEstimates()
    for name, solo in MEASURED.items():
        made.learn(name, solo)
    for name in names:
        made.learn(name, Solo("train.py"))
    return made


def answered(made: ColocationEstimates, work_s: dict[str, float], met: Sequence[str] = (), most: int = 48) -> set[str]:
    """Let the adviser answer about classes with work; the classes that it was asked about."""
    asked = made.asked_about(work_s, met, most)
    solos = tuple((name, made.solos[name]) for name in asked)
    made.foreseen(*foresee(AskInterference(1, solos, SEEN, tuple(asked.items()), 3)), SEEN)
    return set(asked)


def test_two_classes_stand_for_all_that_look_alike_with_all_of_their_work() -> None:
    names = [f"train-{number}" for number in range(300)]
    made = estimates(names)
    asked = made.asked_about({**dict.fromkeys(names, 2.0), "busy": 5.0, "waits": 7.0}, (), 48)
    assert asked == {"train-0": 2.0, "train-1": 598.0, "busy": 5.0, "waits": 7.0}


def test_a_class_that_was_measured_beside_others_stands_for_itself_alone() -> None:
    made = estimates(["a", "b", "c", "d"])
    assert set(made.asked_about(dict.fromkeys("abcd", 1.0), {"c"}, 48)) == {"a", "b", "c"}


def test_a_question_has_its_bound() -> None:
    made = ColocationEstimates()
    for number in range(60):
        made.learn(f"class-{number}", Solo(f"script-{number}.py"))
    assert len(made.asked_about(dict.fromkeys(made.solos, 1.0), (), 48)) == 48


@pytest.mark.nightly
@given(st.lists(st.sampled_from(["busy", "waits", "a", "b", "c", "d", "e"]), min_size=2, max_size=4))
def test_forecasts_are_those_of_a_question_that_names_every_class(group: list[str]) -> None:
    """Pairs of two alike classes, and of one with itself, are among them."""
    by_two, by_name = estimates("abcde"), estimates("abcde")
    work_s = dict.fromkeys([*"abcde", *MEASURED], 60.0)
    assert answered(by_two, work_s) == {"a", "b", *MEASURED}
    solos = tuple((name, by_name.solos[name]) for name in work_s)
    by_name.foreseen(*foresee(AskInterference(1, solos, SEEN, tuple(work_s.items()), 3)), SEEN)
    found, wanted = by_two.forecast(group), by_name.forecast(group)
    assert found.speeds == pytest.approx(wanted.speeds, rel=1e-3)
    assert found.errors == pytest.approx(wanted.errors, rel=1e-3)


def test_a_class_that_comes_after_the_answer_is_told_by_those_that_look_like_it() -> None:
    made = estimates("ab")
    answered(made, {"a": 1.0, "b": 1.0})
    made.learn("new", Solo("train.py"))
    assert made.forecast(("new", "a")).speeds == made.forecast(("b", "a")).speeds
    assert made.price("new") == made.price("a")
