"""Verdicts of `ecoshare profile --compare` on variants of one training."""

from __future__ import annotations

import pytest

from ecoshare.knowledge.profile import Profile
from ecoshare.reporting.profile_verdict import verdict, with_common_reports
from tests.reporting.profiles import PROFILE
from tests.reporting.test_profile_text import printed, rows


def variant(times: float, joules: float, accuracies: list[float | None], size_bytes: float = 1e6) -> Profile:
    """The profile with other costs of an iteration, and with reports of an accuracy and of bytes."""
    assert PROFILE.train is not None
    assert PROFILE.energy is not None
    assert PROFILE.energy.per_iteration_j is not None
    return PROFILE.model_copy(
        update={
            "train": PROFILE.train.model_copy(update={"mean_s": PROFILE.train.mean_s * times}),
            "energy": PROFILE.energy.model_copy(update={"per_iteration_j": PROFILE.energy.per_iteration_j * joules}),
            "reported": {"accuracy": tuple(accuracies), "sent_bytes": (size_bytes,) * len(accuracies)},
        }
    )


GOOD: list[float | None] = [0.5, 0.6, 0.7, 0.75, 0.8, 0.82, 0.84, 0.85]
BAD = [None if value is None else 0.9 * value for value in GOOD]
BEFORE = variant(1.0, 1.0, GOOD)


@pytest.mark.parametrize(
    ("times", "joules", "accuracies", "found"),
    [
        (0.5, 0.6, GOOD, "the second pays: time -50"),
        (0.5, 1.0, GOOD, "the second pays"),
        (1.0, 1.0, GOOD, "the second makes no difference"),
        (0.97, 0.97, GOOD, "the second makes no difference"),
        (1.3, 1.1, GOOD, "the second does not pay"),
        (1.0, 1.0, BAD, "the second does not pay"),
        (0.5, 0.5, BAD, "the second is a trade"),
        (0.5, 1.3, GOOD, "the second is a trade"),
        (0.5, 0.5, [*GOOD[:7], None], "the second is a trade"),
        (0.5, 0.5, [*GOOD, *BAD], "the second pays"),
        (0.5, 0.5, GOOD[:7], "open, since too few reports of"),
    ],
)
def test_a_variant_pays_if_it_costs_less_and_nothing_is_worse(
    times: float, joules: float, accuracies: list[float | None], found: str
) -> None:
    assert verdict(BEFORE, variant(times, joules, accuracies)).startswith(found)


def test_a_change_within_its_errors_makes_no_difference() -> None:
    """If it failed, two windows of a noisy machine would be a verdict."""
    assert BEFORE.train is not None
    noisy = BEFORE.train.model_copy(update={"standard_error_s": 0.1 * BEFORE.train.mean_s})
    before = BEFORE.model_copy(update={"train": noisy})
    assert "makes no difference" in verdict(before, variant(0.85, 1.0, GOOD))
    assert "pays" in verdict(before, variant(0.7, 1.0, GOOD))


def test_a_disturbed_profile_leaves_the_verdict_open() -> None:
    """If it failed, the load of other programs in one of two windows would pass for a saving."""
    disturbed = variant(0.5, 0.5, GOOD).model_copy(update={"doubt": "other programs kept 2 processors busy"})
    for pair in ((BEFORE, disturbed), (disturbed, BEFORE)):
        assert verdict(*pair).startswith("open, since other programs kept 2 processors busy: time ")


def test_scripts_that_report_nothing_in_common_get_no_verdict() -> None:
    """If it failed, iterations of unlike work would be told to pay: those of another batch size, for example."""
    assert verdict(PROFILE, BEFORE) == verdict(PROFILE, PROFILE) == ""
    assert "verdict" not in printed(PROFILE, PROFILE, width=200)


def test_bytes_and_accuracy_are_printed_after_equally_many_reports() -> None:
    first, second = with_common_reports(BEFORE, variant(0.5, 0.5, [*GOOD, 0.99], 1e4))
    assert [len(each.reported["accuracy"]) for each in (first, second)] == [8, 8]
    text = printed(BEFORE, variant(0.5, 0.5, [*GOOD, 0.99], 1e4), width=200)
    read = rows(text)
    assert read["sent_bytes, report 8"].split() == ["1000000", "10000", "0.01"]
    assert read["accuracy, report 8"].split() == ["0.85", "0.85", "1"]
    assert "verdict\n  the second pays: " in text
    assert rows(printed(BEFORE, width=200))["accuracy, report 8"] == "0.85"
