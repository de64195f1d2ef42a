"""The gate before the scheduler: jobs arrive after what they wait for, or never."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ecoshare.core.arrival_gate import COMPLETED, ArrivalGate, Eligible, Hopeless, Verdict


def test_a_job_arrives_after_the_last_that_it_waits_for() -> None:
    gate = ArrivalGate()
    assert gate.submit("a") == [Eligible("a")]
    assert gate.submit("c", after=["a"], after_any=["b"]) == []
    assert "c" in gate and gate.waits_for("c") == ("a", "b") and set(gate.awaited) == {"a", "b"}
    assert gate.ended("a", COMPLETED) == [] and gate.waits_for("c") == ("b",)
    assert gate.ended("b", "failed") == [Eligible("c")] and "c" not in gate and not set(gate.awaited)


def test_a_job_is_hopeless_if_what_must_complete_does_not_and_so_is_what_waits_for_it() -> None:
    gate = ArrivalGate()
    for name, after, after_any in (("b", ["a"], []), ("c", ["b", "a"], []), ("d", [], ["c"])):
        assert gate.submit(name, after, after_any) == []
    assert gate.ended("a", "failed") == [
        Hopeless("b", "a failed, and had to complete first"),
        Hopeless("c", "b was cancelled, and had to complete first"),
        Eligible("d"),
    ]
    assert not set(gate.awaited)


def test_what_ended_before_counts_at_once() -> None:
    gate, ended = ArrivalGate(), {"a": COMPLETED, "b": "cancelled"}
    assert gate.submit("waits", after=["late"]) == []
    assert gate.submit("c", after=["a"], after_any=["b"], ended=ended) == [Eligible("c")]
    assert gate.submit("late", after=["a", "b"], ended=ended) == [
        Hopeless("late", "b was cancelled, and had to complete first"),
        Hopeless("waits", "late was cancelled, and had to complete first"),
    ]


def test_time_and_other_jobs_both_count() -> None:
    for time_first in (True, False):
        gate = ArrivalGate()
        assert gate.submit("b", after=["a"], early=True) == []
        if time_first:
            assert gate.passed("b") == [] and gate.ended("a", COMPLETED) == [Eligible("b")]
        else:
            assert gate.ended("a", COMPLETED) == [] and gate.passed("b") == [Eligible("b")]
    assert gate.passed("b") == [], "it has arrived"


@given(
    waits=st.lists(st.tuples(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9))), min_size=1, max_size=8),
    states=st.lists(st.sampled_from([COMPLETED, "failed", "pruned"]), min_size=10, max_size=10),
    order=st.permutations(range(10)),
)
def test_every_job_gets_one_verdict_as_a_slow_reading_says(
    waits: list[tuple[set[int], set[int]]], states: list[str], order: list[int]
) -> None:
    """Job n waits for jobs before it only; jobs that arrive end when it is their turn, with the given states."""
    gate = ArrivalGate()
    verdicts: list[Verdict] = []
    after = [
        ({each for each in ok if each < n}, {each for each in any_ if each < n}) for n, (ok, any_) in enumerate(waits)
    ]
    for n, (ok, any_) in enumerate(after):
        verdicts += gate.submit(str(n), [str(each) for each in sorted(ok)], [str(each) for each in sorted(any_)])
    ended: dict[int, str] = {}
    arrived = {int(each.name) for each in verdicts}
    while len(ended) < len(after):
        turn = next(each for each in order if each in arrived and each not in ended)
        ended[turn] = states[turn]
        for verdict in gate.ended(str(turn), states[turn]):
            name = int(verdict.name)
            verdicts.append(verdict)
            if isinstance(verdict, Eligible):
                ok, any_ = after[name]
                assert all(ended.get(each) == COMPLETED for each in ok) and any_ <= ended.keys()
                arrived.add(name)
            else:
                assert any(ended.get(each, COMPLETED) != COMPLETED for each in after[name][0])
                ended[name] = "cancelled"
    assert sorted(each.name for each in verdicts) == sorted(str(n) for n in range(len(after)))
    assert not set(gate.awaited)


def test_a_held_job_arrives_once_it_is_released_and_waits_for_nothing() -> None:
    gate = ArrivalGate()
    assert gate.submit("b", after=["a"], held=True) == [] and gate.is_held("b")
    assert gate.ended("a", COMPLETED) == [] and gate.waits_for("b") == ()
    assert gate.release("b") == [Eligible("b")] and not gate.is_held("b")
    gate.submit("d", after=["c"])
    gate.hold("d")
    assert gate.release("d") == [] and gate.ended("c", COMPLETED) == [Eligible("d")]


def test_held_jobs_are_counted_while_they_are_at_the_gate() -> None:
    gate = ArrivalGate()
    gate.submit("a", early=True)
    gate.submit("b", early=True, held=True)
    assert gate.held == 1
    gate.hold("a")
    assert gate.held == 2
    gate.release("b")
    gate.ended("a", "cancelled")
    assert gate.held == 0
