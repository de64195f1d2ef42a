"""The chosen group against all possible groups, and the time of the choice with a thousand waiting jobs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.attempt import Usage
from ecoshare.base.class_profile import Solo
from ecoshare.base.measurement import ColocationMeasurement, PairSpeed
from ecoshare.core.events import IterationsDone
from ecoshare.core.placement.colocation_estimates import PROCESSORS_GUESS, ColocationEstimates, ColocationForecast
from ecoshare.core.placement.job_groups import EXPLORE, HOPE, Candidate, Grouping, JobGroup
from tests.core.stepping import Core

CLASSES = "abcdef"
NEARLY = 1.03


@st.composite
def outlooks(draw: st.DrawFn) -> ColocationEstimates:
    outlook = ColocationEstimates()
    for name in CLASSES:
        outlook.learn(name, Solo(name, 0.1, draw(st.floats(60.0, 300.0)), 40.0))
    speeds = st.floats(0.2, 1.0)
    pairs = [PairSpeed(one, other, draw(speeds), draw(st.floats(0.0, 0.1))) for one in CLASSES for other in CLASSES]
    outlook.foreseen(pairs, {})
    return outlook


@st.composite
def candidates(draw: st.DrawFn, most: int = 8) -> list[Candidate]:
    limits = st.one_of(st.just(0.0), st.floats(0.3, 0.9))
    return [
        Candidate(number, draw(st.sampled_from(CLASSES)), draw(st.floats(20.0, 300.0)), draw(limits))
        for number in range(draw(st.integers(1, most)))
    ]


def watts(forecast: ColocationForecast) -> float:
    return forecast.power_w


def time(forecast: ColocationForecast) -> float:
    return 1.0


def any_group(members: object) -> bool:
    return True


def all_groups(grouping: Grouping, them: list[Candidate], largest: int) -> list[JobGroup]:
    """All groups that hold the first candidate and keep the limits. The first candidate alone always counts."""
    first, *others = them
    groups = [grouping.of([first, *mates]) for size in range(largest) for mates in combinations(others, size)]
    return [each for each in groups if each.keeps_limits or len(each.members) == 1]


@given(outlooks(), candidates(), st.sampled_from([watts, time]), st.integers(1, 4))
def test_no_group_is_much_better(
    outlook: ColocationEstimates, them: list[Candidate], spent: Callable[[ColocationForecast], float], largest: int
) -> None:
    grouping = Grouping(outlook, spent, largest)
    found = grouping.best(them, any_group)
    best = min(each.cost for each in all_groups(grouping, them, largest))
    assert found is not None
    assert found.cost <= NEARLY * best


@given(outlooks(), candidates(), st.sets(st.integers(0, 7)), st.permutations(range(8)))
def test_jobs_that_must_run_do_if_all_keep_their_limits(
    outlook: ColocationEstimates, them: list[Candidate], must: set[int], urgency: list[int]
) -> None:
    them = [
        each._replace(must=each.least > 0.0 and each.number in must, urgency=float(urgency[each.number]))
        for each in them
    ]
    grouping = Grouping(outlook, watts, 3)
    found = grouping.best(them, any_group)
    assert found is not None
    bound = [each for each in them if each.must]
    together = grouping.of(bound)
    assert len(found.members) <= 3
    assert len(found.members) == 1 or found.keeps_limits or set(found.members) == set(bound)
    nearest = min((v / each.least for each, v in zip(bound, together.forecast.speeds, strict=True)), default=1.0)
    in_turn = sum(each.least for each in bound)
    if len(bound) <= 1 or (len(bound) <= 3 and (together.keeps_limits or nearest * in_turn >= 1.0)):
        assert set(bound) <= set(found.members)
        assert them[0] in found.members or bound
    else:
        assert set(found.members) <= set(bound), "another job runs while one of them waits"
        assert max(bound, key=lambda each: each.urgency) in found.members


@given(outlooks(), candidates())
def test_no_job_joins_a_group_without_room(outlook: ColocationEstimates, them: list[Candidate]) -> None:
    found = Grouping(outlook, watts, 3).best(them, lambda members: sum(each.number % 3 + 1 for each in members) <= 4)
    assert found is not None
    assert len(found.members) == 1 or sum(each.number % 3 + 1 for each in found.members) <= 4


def test_jobs_that_slow_each_other_stay_apart_and_others_are_packed() -> None:
    outlook = ColocationEstimates()
    for name in "abc":
        outlook.learn(name, Solo(name, 0.1, 200.0, 40.0))
    speeds = {("a", "b"): 0.4, ("b", "a"): 0.45, ("a", "c"): 0.9, ("c", "a"): 0.95}
    outlook.foreseen([PairSpeed(*pair, speed, 0.01) for pair, speed in speeds.items()], {})
    a, b, c = (Candidate(number, name, 200.0) for number, name in enumerate("abc"))
    grouping = Grouping(outlook, watts, 2)
    two, three = grouping.best([a, b], any_group), grouping.best([a, b, c], any_group)
    assert two is not None and two.members == (a,)
    assert three is not None and three.members == (a, c)


def test_of_groups_that_cost_the_same_the_one_that_does_more_is_chosen() -> None:
    """Prices make the groups of the cheapest plan equally cheap: jobs that mostly wait were left for later, alone."""
    outlook = ColocationEstimates()
    outlook.learn("busy", Solo("busy", 0.1, 200.0, 40.0))
    outlook.learn("waits", Solo("waits", 0.1, 45.0, 40.0))
    outlook.foreseen([PairSpeed(one, other, 0.98, 0.0) for one in ("busy", "waits") for other in ("busy", "waits")], {})
    grouping = Grouping(outlook, watts, 4)

    def chosen(worth: float) -> int:
        waiting = [Candidate(number, "waits", worth) for number in range(1, 4)]
        found = grouping.best([Candidate(0, "busy", 200.0), *waiting], any_group)
        assert found is not None
        return len(found.members)

    # Each of them takes 2 % of all speeds, and is worth that from 5.8 W on.
    assert chosen(6.0) == 4, "three of them save 0.25 % of the joules, and more than twice the work is done"
    assert chosen(5.0) == 1, "each costs more than it is worth"


@given(outlooks(), st.lists(candidates(), min_size=2, max_size=4))
def test_groups_never_replace_each_other_in_a_circle(outlook: ColocationEstimates, them: list[list[Candidate]]) -> None:
    grouping = Grouping(outlook, watts, 8)
    groups = [grouping.of(members) for members in them]
    assert not all(after.beats(before) for before, after in zip(groups, [*groups[1:], groups[0]], strict=True))


def test_a_measured_group_of_three_is_as_it_was_measured_whatever_its_pairs_are() -> None:
    """If it failed, a group that does not pay would be formed and measured again and again."""
    outlook = ColocationEstimates()
    for name in "abc":
        outlook.learn(name, Solo(name, 0.1, 200.0, 40.0))
    pairs = [PairSpeed(one, other, 0.9, 0.01) for one in "abc" for other in "abc"]
    outlook.foreseen(pairs, {})
    them = [Candidate(number, name, 200.0) for number, name in enumerate("abc")]
    assert len(Grouping(outlook, watts, 3).of(them).forecast.speeds) == 3
    assert min(outlook.forecast("cab").speeds) > 0.8
    outlook.foreseen(pairs, {}, [ColocationMeasurement(("c", "a", "b"), (0.1, 0.2, 0.3), 240.0)])
    assert outlook.forecast("abc").speeds == (0.2, 0.3, 0.1) and outlook.forecast("cab").speeds == (0.1, 0.2, 0.3)
    assert outlook.forecast("ab").speeds == pytest.approx((0.9, 0.9)), "its pairs are as predicted"
    best = Grouping(outlook, watts, 3).best(them, any_group)
    assert best is not None and len(best.members) == 2


def test_a_job_that_will_be_measured_is_given_more_of_a_chance_than_one_that_was() -> None:
    """Else a class that is expected to slow others would run only when no other job is left, known or not."""
    outlook = ColocationEstimates()
    outlook.foreseen([PairSpeed(one, other, 0.4, 0.15) for one in "ab" for other in "ab"], {})
    grouping = Grouping(outlook, lambda forecast: 1.0, 2)
    known = [Candidate(0, "a", 1.0), Candidate(1, "b", 1.0)]
    new = [known[0], known[1]._replace(hope=EXPLORE)]
    chosen = [grouping.best(each, lambda _members: True) for each in (known, new)]
    assert [len(group.members) for group in chosen if group is not None] == [1, 2]


@pytest.mark.parametrize(
    ("left_s", "spent", "is_tried"),
    [(3.0, watts, False), (600.0, watts, True), (3.0, time, False), (600.0, time, True)],
    ids=["joules, soon over", "joules, much left", "time, soon over", "time, much left"],
)
def test_a_group_that_is_only_hoped_to_pay_is_tried_if_the_work_that_is_left_can_pay_for_the_trial(
    left_s: float, spent: Callable[[ColocationForecast], float], is_tried: bool
) -> None:
    """A first run of short jobs took 10 to 15 % more joules than in turn: it tried what it had no use for."""
    outlook = ColocationEstimates()
    for name in "ab":
        outlook.learn(name, Solo(name, 0.1, 200.0, 40.0))
    outlook.foreseen([PairSpeed(one, other, 0.4, 0.2) for one in "ab" for other in "ab"], {})
    worth = 200.0 if spent is watts else 1.0
    them = [Candidate(number, name, worth, hope=EXPLORE, left_s=left_s) for number, name in enumerate("ab")]
    found = Grouping(outlook, spent, 2).best(them, any_group)
    assert found is not None and len(found.members) == (2 if is_tried else 1)


def test_a_group_that_is_expected_to_pay_needs_no_trial() -> None:
    outlook = ColocationEstimates()
    for name in "ab":
        outlook.learn(name, Solo(name, 0.1, 200.0, 40.0))
    outlook.foreseen([PairSpeed(one, other, 0.8, 0.2) for one in "ab" for other in "ab"], {})
    them = [Candidate(number, name, 200.0, left_s=0.1) for number, name in enumerate("ab")]
    found = Grouping(outlook, watts, 2).best(them, any_group)
    assert found is not None and len(found.members) == 2


def test_jobs_that_want_all_processors_draw_their_full_power_however_slow_they_are() -> None:
    """With power in proportion to speed, a pair that slows itself to a fifth seemed to cost next to nothing."""
    outlook = ColocationEstimates(PROCESSORS_GUESS)
    for name, busy in (("a", 0.8), ("b", 0.9), ("c", 0.05)):
        outlook.learn(name, Solo(name, 0.1, 2.0 + 5.0 * busy, 2.0, busy=busy))
    outlook.foreseen([PairSpeed(one, other, 0.25, 0.1) for one in "abc" for other in "abc"], {})
    assert outlook.forecast(["a", "b"]).power_w == pytest.approx(7.0)
    assert outlook.forecast(["a", "c"]).power_w == pytest.approx(2.0 + 0.25 * 5.0 * 0.85), "the processors wait"
    hoped = outlook.hoped(["a", "b"], outlook.forecast(["a", "b"]), 9.0)
    assert hoped.speeds == pytest.approx((1.0 / 1.7, 1.0 / 1.7)), "all the time that there is"


def test_a_class_is_new_until_its_window_has_begun() -> None:
    core = Core(lanes=2, profile=True)
    core.arrive("a0", profiled=False, solo=None, memory=None)
    packer = core.scheduler.view.placement.groups
    assert packer is not None
    job = core.scheduler.jobs["a0"]
    assert packer.candidate(job, 0.0).hope == EXPLORE
    core.arrive("b0")
    assert packer.candidate(core.scheduler.jobs["b0"], 0.0).hope == HOPE
    core.now_s = 2.0
    core.tell(IterationsDone(2.0, "a0", Usage(iterations=100, held_s=2.0, span_s=2.0)))
    assert core.scheduler.view.profiling.windows, "it is measured now"
    assert packer.candidate(job, 2.0).hope == HOPE


def test_any_number_of_alike_jobs_run_beside_each_other() -> None:
    """Before, a group had at most two mates of one kind, so of many jobs that wait for data three ran."""
    outlook = ColocationEstimates()
    outlook.learn("a", Solo("a", 0.1, 60.0, 40.0))
    outlook.foreseen([PairSpeed("a", "a", 1.0, 0.0)], {})
    them = [Candidate(number, "a", 20.0) for number in range(8)]
    found = Grouping(outlook, watts, 6).best(them, any_group)
    assert found is not None
    assert len(found.members) == 6
