"""Energy account of a run."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.record.accounts.energy_account import EnergyRate, account
from ecoshare.record.samples import AttemptProgress, Idle, Line, Sample, Session, decode, encode

SESSION = Session(0.0, "cuda:0", "nvml", "measured", "gpu", "a counter", 0.1, 40.0)
RATES = {"a": EnergyRate(2.0, 0.5, 0.03), "b": EnergyRate(7.0, 1.0, 0.0)}


def progress(lane: int, iterations: int, held_s: float = 1.0) -> AttemptProgress:
    return AttemptProgress(lane, held_s, iterations, 0, held_s)


@st.composite
def runs(draw: st.DrawFn) -> list[Session | Sample]:
    """Random interleavings: jobs start and die, the meter is read at odd moments, fails, resumes."""
    lines: list[Session | Sample] = [SESSION]
    at_s = energy_j = 0.0
    jobs: dict[str, AttemptProgress] = {}
    for _ in range(draw(st.integers(0, 25))):
        step = draw(st.sampled_from(["sample"] * 6 + ["start", "die", "fault", "resume"]))
        if step == "start":
            job, attempt = draw(st.sampled_from("abc")), draw(st.integers(1, 3))
            jobs[f"{job}#{attempt}"] = AttemptProgress(draw(st.integers(0, 2)), 0.0, 0, 0, 0.0)
        elif step == "die" and jobs:
            jobs.pop(draw(st.sampled_from(sorted(jobs))))
        elif step == "resume":
            lines.append(replace(SESSION, at_s=at_s))
            jobs, energy_j = {}, 0.0
        else:
            at_s += draw(st.floats(0.01, 5.0))
            energy_j += draw(st.floats(0.0, 3000.0))
            for key, each in jobs.items():
                if draw(st.booleans()):
                    jobs[key] = AttemptProgress(
                        each.lane,
                        each.held_s + draw(st.floats(0, 2)),
                        each.iterations + draw(st.integers(0, 50)),
                        each.eval_iterations + draw(st.integers(0, 50)),
                        each.cpu_s + draw(st.floats(0, 2)),
                    )
            number_j = None if step == "fault" else energy_j
            lines.append(Sample(at_s, number_j, jobs=dict(jobs), device=SESSION.device))
    return lines


@given(runs())
def test_the_jobs_and_idle_add_up_to_the_device(lines: list[Session | Sample]) -> None:
    result = account(lines, RATES.get)
    for interval in result.intervals:
        if interval.energy_j is not None:
            parts = interval.idle_j + math.fsum(interval.jobs_j.values())
            assert math.isclose(parts, interval.energy_j, rel_tol=1e-9, abs_tol=1e-9)
    if result.energy is not None:
        parts = (result.idle_j or 0.0) + math.fsum(energy.value_j for energy in result.jobs.values())
        assert math.isclose(parts, result.energy.value_j, rel_tol=1e-9, abs_tol=1e-6)
    assert all(energy.value_j >= 0.0 for energy in result.jobs.values())


@given(runs())
def test_lines_survive_the_file(lines: list[Session | Sample]) -> None:
    assert list(decode(map(encode, lines))) == lines


def test_a_file_that_was_cut_off_in_its_last_line_is_read_up_to_it() -> None:
    text = encode(SESSION) + encode(Sample(1.0, 5.0)) + '{"at_s": 2.0, "ener'
    assert list(decode(text.splitlines())) == [SESSION, Sample(1.0, 5.0, device=SESSION.device)], "the only device"


@pytest.mark.parametrize(
    "damaged",
    [
        '{"at_s": 2.0, "ener',
        "[]",
        '{"at_s": NaN, "energy_j": 6.0}',
        '{"at_s": 0.5, "energy_j": 6.0}',
        '{"at_s": 1e11, "energy_j": 6.0}',
        '{"at_s": 2.0, "energy_j": 6.0, "jobs": {"a#1": [0, -1.0, 1, 0, 0.0]}}',
        '{"at_s": 2.0, "energy_j": 6.0, "jobs": {"a#1": [0]}}',
        '{"session": {"at_s": 2.0}}',
    ],
)
def test_joules_around_a_damaged_line_are_not_known(damaged: str) -> None:
    good = [encode(Sample(float(second), 5.0 * second)) for second in (1, 3, 4, 5)]
    lines = [encode(SESSION), good[0], damaged, *good[1:]]
    assert [line.fault for line in decode(lines) if isinstance(line, Sample) and line.fault] == [
        "line 3 of samples.jsonl is damaged"
    ]
    found = account(decode(lines), lambda _job: None)
    assert [interval.energy_j for interval in found.intervals] == [None, None, 5.0]
    assert found.faults == ["line 3 of samples.jsonl is damaged"] and found.covered == 0.25


def test_samples_without_a_session_say_nothing() -> None:
    assert list(decode([encode(Sample(1.0, 5.0)), encode(Sample(2.0, 6.0))])) == []


def test_an_interval_shorter_than_the_counters_period_is_joined_to_the_next() -> None:
    lines: list[Line] = [SESSION, Sample(0.0, 0.0), Sample(0.05, 80.0), Sample(1.0, 100.0)]
    (interval,) = account(lines, RATES.get).intervals
    assert (interval.from_s, interval.to_s, interval.energy_j) == (0.0, 1.0, 100.0)


def test_a_counter_that_stands_still_while_a_job_works_is_no_zero() -> None:
    lines: list[Line] = [SESSION, Sample(0.0, 0.0), Sample(1.0, 0.0, jobs={"a#1": progress(0, 10)}), Sample(2.0, 50.0)]
    (interval,) = account(lines, RATES.get).intervals
    assert (interval.from_s, interval.to_s, interval.energy_j) == (0.0, 2.0, 50.0), "what it catches up is of both"
    never = account(lines[:-1], RATES.get)
    assert never.energy is None and never.intervals[0].energy_j is None
    assert never.faults == ["the energy counter stood still while a job was busy"]
    assert "told it later" in account(lines, RATES.get).faults[0]


def test_a_counter_that_went_back_costs_its_interval_alone() -> None:
    lines: list[Line] = [SESSION, Sample(0.0, 0.0), Sample(1.0, 100.0), Sample(2.0, 10.0), Sample(3.0, 90.0)]
    result = account(lines, RATES.get)
    assert [interval.energy_j for interval in result.intervals] == [100.0, None, 80.0]


def test_joules_that_no_job_can_have_caused_are_idle() -> None:
    lines: list[Line] = [SESSION, Sample(0.0, 0.0), Sample(1.0, 500.0, jobs={"a#1": progress(0, 0, held_s=0.0)})]
    result = account(lines, RATES.get)
    assert result.idle_j == 500.0
    assert result.jobs["a"].value_j == 0.0


def test_iterations_count_by_what_their_class_takes() -> None:
    """One lane: 10 iterations of a (2 J) and 10 of b (7 J) share 90 active joules as 20 to 70."""
    lines: list[Line] = [
        SESSION,
        Sample(0.0, 0.0),
        Sample(1.0, 130.0, jobs={"a#1": progress(0, 10), "b#2": progress(0, 10)}),
    ]
    result = account(lines, RATES.get)
    assert result.idle_j == 40.0
    assert {job: round(energy.value_j, 6) for job, energy in result.jobs.items()} == {"a": 20.0, "b": 70.0}
    assert result.jobs["a"].standard_error_j > result.jobs["b"].standard_error_j / 70 * 20


def test_a_class_without_a_profile_counts_by_its_time_with_the_turn() -> None:
    jobs = {"a#1": progress(0, 10, held_s=0.5), "new#1": progress(0, 3, held_s=0.25)}
    result = account([SESSION, Sample(0.0, 0.0), Sample(1.0, 100.0, jobs=jobs)], RATES.get)
    assert result.jobs["a"].value_j == pytest.approx(40.0)
    assert result.jobs["new"].value_j == pytest.approx(20.0)


def test_what_ended_in_a_line_that_is_passed_over_is_not_lost() -> None:
    """The last report of `a` comes 50 ms after a sample, too soon for the counter to have moved."""
    lines: list[Line] = [
        SESSION,
        Sample(0.0, 0.0, jobs={"a#1": progress(0, 10, 1.0), "b#1": progress(0, 0, 0.0)}),
        Sample(0.05, 0.0, jobs={"a#1": progress(0, 20, 1.02), "b#1": progress(0, 5, 0.02)}),
        Sample(1.0, 130.0, jobs={"b#1": progress(0, 10, 0.9)}),
    ]
    result = account(lines, RATES.get)
    assert {job: round(energy.value_j, 6) for job, energy in result.jobs.items()} == {"a": 20.0, "b": 70.0}


def test_the_idle_power_that_was_watched_counts_for_the_whole_session() -> None:
    first, then = Sample(0.0, 0.0), Sample(1.0, 130.0, jobs={"a#1": progress(0, 10)})
    lines: list[Line] = [SESSION, first, then, Idle(2.0, 70.0, 1.0)]
    assert account(lines, RATES.get).idle_j == 70.0
    later = replace(SESSION, at_s=10.0)
    result = account([*lines, later, replace(first, at_s=10.0), replace(then, at_s=11.0)], RATES.get)
    known = [interval.idle_j for interval in result.intervals if interval.energy_j is not None]
    assert known == [70.0, 40.0], "another session, another machine maybe"


def test_processor_time_that_is_told_late_takes_its_joules_along() -> None:
    """The end of a job comes 3 ms after a sample, with the processor time of the second before."""
    session = replace(SESSION, scope="cpu", period_s=0.001, idle_w=1.0)
    steady = AttemptProgress(1, 1.0, 1, 0, 0.0)
    lines: list[Session | Sample] = [
        session,
        Sample(0.0, 0.0, jobs={"a#1": AttemptProgress(0, 0.0, 0, 0, 0.0), "b#1": steady}),
        Sample(1.0, 5.0, jobs={"a#1": AttemptProgress(0, 1.0, 9, 0, 1.0), "b#1": steady._replace(cpu_s=1.0)}),
        Sample(2.0, 10.0, jobs={"a#1": AttemptProgress(0, 1.0, 9, 0, 1.0), "b#1": steady._replace(cpu_s=2.0)}),
        Sample(2.003, 10.015, jobs={"a#1": AttemptProgress(0, 2.0, 18, 0, 2.0), "b#1": steady._replace(cpu_s=2.003)}),
    ]
    result = account(lines, lambda _: None)
    assert result.jobs["a"].value_j == pytest.approx(4.0, rel=0.01), "its second half went to its neighbour"
    assert result.jobs["b"].value_j == pytest.approx(4.0, rel=0.01)
    assert result.energy is not None and result.energy.value_j == pytest.approx(10.015)
    assert [(each.from_s, each.to_s) for each in result.intervals] == [(0.0, 1.0), (1.0, 2.003)]
    assert result.iterations["a"] == 18


slices = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6), st.floats(1.0, 50.0)), min_size=1, max_size=20)


@given(slices, st.floats(0.0, 20.0))
def test_the_joules_of_runs_that_share_a_device_add_up_to_those_of_the_meter(
    halves: list[tuple[int, int, float]], idle_w: float
) -> None:
    """Three runs have the device one after the other. Each samples at times of its own, with what it knows by then."""
    had = [(who, count / 2, watts) for who, count, watts in halves]
    ends_s = [0.0]
    for _, length_s, _ in had:
        ends_s.append(ends_s[-1] + length_s)
    whole_s = ends_s[-1]

    def spent_j(at_s: float) -> float:
        parts = zip(had, ends_s, strict=False)
        return idle_w * at_s + sum(watts * min(max(0.0, at_s - from_s), length) for (_, length, watts), from_s in parts)

    def had_s(run: int, at_s: float) -> float:
        parts = zip(had, ends_s, strict=False)
        return sum(min(max(0.0, at_s - from_s), length) for (who, length, _), from_s in parts if who == run)

    found_j = []
    for run in range(3):
        times = sorted({*ends_s, *(place * (run + 1) / 4 for place in range(300))})
        lines: list[Line] = [Session(0.0, "d", "m", "measured", "gpu", "", 0.01, idle_w)]
        for at_s in (each for each in times if each <= whole_s):
            own_s = had_s(run, at_s)
            jobs = {"job#1": AttemptProgress(0, own_s, int(10 * own_s), 0, 0.0)}
            away_s, idle_s = at_s - own_s, 2.0 / 3.0 * at_s
            lines.append(Sample(at_s, spent_j(at_s), jobs=jobs, device="d", away_s=away_s, idle_of_others_s=idle_s))
        energy = account(lines, lambda _: None).energy
        found_j.append(0.0 if energy is None else energy.value_j)
    assert sum(found_j) == pytest.approx(spent_j(whole_s), rel=1e-6, abs=1e-6)


def test_the_time_between_two_sessions_is_not_covered() -> None:
    """No meter was read while the run was interrupted, and the joules were told to be those of the whole time."""
    lines: list[Line] = [
        SESSION,
        *(Sample(at_s, 50.0 * at_s) for at_s in (0.0, 5.0, 10.0)),
        replace(SESSION, at_s=30.0),
        *(Sample(30.0 + at_s, 50.0 * at_s) for at_s in (0.0, 5.0, 10.0)),
    ]
    result = account(lines, RATES.get)
    assert result.covered == pytest.approx(20.0 / 40.0)
    assert result.faults == ["the run was interrupted, and resumed later"]
    assert result.energy is not None and result.energy.value_j == pytest.approx(1000.0)
