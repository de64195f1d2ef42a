"""Packings that ran, as expected and as measured, and the cost of the same work in another way."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.attempt import Usage
from ecoshare.base.class_profile import BY_LIMITS, BY_PLACEMENT, Solo
from ecoshare.base.joules import MODELLED
from ecoshare.base.measurement import Packing, Setting
from ecoshare.core.commands import Command
from ecoshare.core.events import Config
from ecoshare.record.accounts.run_energy import RunEnergy
from ecoshare.record.packing_timeline import PackingPeriod, PackingTimeline, packing_timeline
from ecoshare.record.plan_document import JobDocument
from ecoshare.record.results.baseline import Baseline, baseline
from ecoshare.record.results.costs_and_savings import windows
from ecoshare.record.results.energy_summary import DeviceEnergy
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.results.packing_summary import PackingSummary, packings
from ecoshare.record.results.run_summary import RunSummary, summarise
from ecoshare.record.run_history import RunHistory
from ecoshare.record.samples import AttemptProgress, Line, Sample, Session
from ecoshare.record.setting_history import BudgetSummary, SettingPeriod
from ecoshare.reporting.tables.run_table import settings_tried, verdicts
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.traces.job_trace import TraceJob
from tests.reporting.profiles import PROFILE
from tests.reporting.recorded import METER_W, Entries, Settable, entries_of, metered, plan, proposing
from tests.simulation.test_packs import GPU, JOBS, PACKS, SPEEDS, job, simulated, world

ENERGY = Config("energy", 2, 4, profile=True)
SLOW: Setting = (("gpu_clock", 1200.0),)
BAD: Setting = (("gpu_clock", 500.0),)
EFFECTS = {SLOW: (0.9, 0.6), BAD: (0.5, 0.95)}


def end_of(entries: Entries) -> float:
    return max(entry.at_s for entry in entries if not isinstance(entry, Command))


def rows_of(entries: Entries) -> dict[Packing, PackingSummary]:
    """Packings of a run with a constant power, by their classes."""
    end_s = end_of(entries)
    rows = packings(packing_timeline(entries), metered(end_s), end_s)
    return {row.classes: row for row in rows}


def ratio(setting: Setting) -> float:
    """E at a setting over E at the default, by the world's numbers, for jobs that draw as much as one alone."""
    speed, watts = EFFECTS[setting]
    return (GPU.idle_w + watts * GPU.active_w) / speed / (GPU.idle_w + GPU.active_w)


def test_a_pair_has_what_was_expected_and_what_was_measured() -> None:
    rows = rows_of(entries_of([job("a0", "a", 200.0), job("b0", "b", 200.0)], world(ab=0.9), ENERGY))
    pair = rows[("a",), ("b",)]
    assert pair.jobs == ("a0", "b0") and pair.verdict == "kept"
    assert pair.predicted is not None and pair.measured is not None
    assert pair.measured.speeds == pytest.approx({"a": 0.9, "b": 0.9})
    drawn_w = min(2 * 0.9 * GPU.active_w, GPU.limit_w - GPU.idle_w)
    assert pair.measured.power_w == pytest.approx(GPU.idle_w + drawn_w)
    assert set(pair.predicted.speeds) == {"a", "b"}
    assert pair.predicted.power_w == pytest.approx(GPU.idle_w + sum(pair.predicted.speeds.values()) * GPU.active_w)
    assert pair.energy_j == pytest.approx(METER_W * pair.duration_s)
    assert (pair.setting, pair.energy_ratio, pair.settings_tried) == (None, None, 0)


def test_without_a_trial_speeds_are_those_of_the_progress_told() -> None:
    """Ten iterations a second alone (0.1 s each); 40 in 8 s with the turn beside others: half the speed."""
    stretch = PackingPeriod(
        "n0g0", {"a0": "a", "b0": "b", "c0": "c", "d0": "d"}, (("a",), ("b",), ("c",), ("d",)), 0.0, to_s=10.0
    )
    stretch.settings.append((0.0, ()))
    stretch.progress = {
        "a0": (Usage(iterations=10, held_s=1.0), Usage(iterations=50, held_s=9.0)),
        "b0": (Usage(iterations=10, held_s=1.0), Usage(iterations=15, held_s=1.5)),
        "c0": (Usage(iterations=10, held_s=1.0), Usage(iterations=50, eval_iterations=5, held_s=9.0)),
    }
    solos = {name: Solo("", 0.1) for name in "abc"}
    (row,) = packings(PackingTimeline([stretch], solos), metered(10.0), 10.0)
    assert row.measured is None, "there was no trial"
    assert row.observed.speeds == pytest.approx({"a": 0.5})
    assert row.observed.missing == {"b": "too short", "c": "evaluated", "d": "no profile"}
    assert row.observed.power_w == pytest.approx(METER_W)


def test_progress_of_a_run_agrees_with_its_trials() -> None:
    rows = rows_of(entries_of([job("a0", "a", 200.0), job("b0", "b", 200.0)], world(ab=0.9), ENERGY))
    observed = rows[("a",), ("b",)].observed
    assert observed.power_w == pytest.approx(METER_W)
    assert set(observed.speeds) | set(observed.missing) == {"a", "b"}
    for speed in observed.speeds.values():
        assert speed == pytest.approx(0.9, rel=0.05)


def test_the_time_of_a_profiling_window_is_in_no_packing() -> None:
    entries = entries_of([job("a0", "a", 200.0), job("b0", "b", 200.0)], world(ab=0.9), ENERGY)
    classes = {"a0": "a", "b0": "b"}
    measured = windows(RunHistory(entries).windows, classes, {}, RunEnergy())
    assert len(measured) == 2
    for window in measured:
        assert window.to_s is not None
        for each in packing_timeline(entries).stretches:
            assert each.to_s is not None and (each.to_s <= window.from_s or each.from_s >= window.to_s)


def test_what_does_not_pay_is_undone() -> None:
    rows = rows_of(entries_of([job("a0", "a", 300.0), job("b0", "b", 300.0)], world(ab=0.3), ENERGY))
    assert rows[("a",), ("b",)].verdict == "undone"
    measured = rows[("a",), ("b",)].measured
    assert measured is not None and measured.speeds == pytest.approx({"a": 0.3, "b": 0.3})
    assert rows[(("a",),)].verdict is None, "nothing was decided of a job alone"


def searched(best: Setting = SLOW) -> tuple[Entries, list[TraceJob]]:
    jobs = [job("a0", "a", 400.0)]
    truth = Settable(GPU, effects=EFFECTS)
    config = Config("energy", 2, 4, profile=True, search=True)
    return entries_of(jobs, truth, config, proposing(SLOW, BAD, best=best)), jobs


def test_a_setting_that_was_kept_is_told_with_what_it_saves() -> None:
    entries, _ = searched()
    (row,) = rows_of(entries).values()
    assert row.setting == dict(SLOW) and row.settings_tried == 2
    assert row.energy_ratio == pytest.approx(ratio(SLOW))
    assert row.verdict == "kept"


@pytest.mark.parametrize("best", [SLOW, ()])
def test_time_at_other_settings_is_counted_back_to_the_default(best: Setting) -> None:
    entries, jobs = searched(best)
    end_s = end_of(entries)
    summary = summarise(plan(jobs, ENERGY), RunHistory(entries), metered(end_s), "r")
    at_s: dict[str, float] = {}
    for each in RunHistory(entries).settings:
        name = str(each.setting)
        at_s[name] = at_s.get(name, 0.0) + (each.to_s or end_s) - each.from_s
    slow_j, bad_j = METER_W * at_s[str(dict(SLOW))], METER_W * at_s[str(dict(BAD))]
    assert summary.energy is not None
    expected_j = summary.energy.value_j + slow_j * (1 / ratio(SLOW) - 1) + bad_j * (1 / ratio(BAD) - 1)
    assert summary.baseline.packed_default_energy_j == pytest.approx(expected_j, rel=1e-3)
    assert ratio(BAD) > 1.0 > ratio(SLOW)
    assert summary.search_energy_j == pytest.approx(bad_j * (1.0 - 1.0 / ratio(BAD)), rel=1e-3), "SLOW costs nothing"


def test_limits_that_keep_a_power_budget_are_neither_tried_nor_compared_with_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries, jobs = searched()

    def summary(by: str) -> RunSummary:
        monkeypatch.setattr(RunHistory, "power_budget", BudgetSummary(200.0, by, None))
        return summarise(plan(jobs, ENERGY), RunHistory(entries), metered(end_of(entries)), "r")

    free, limited = summary(BY_PLACEMENT), summary(BY_LIMITS)
    assert free.search_energy_j and settings_tried(free) and free.baseline.packed_default_energy_j
    assert limited.settings == free.settings and not limited.search_energy_j
    assert not settings_tried(limited) and limited.baseline.packed_default_energy_j is None


def at_slow(**classes: str) -> PackingPeriod:
    """Packing period of 20 s, with the second half at a setting that was never measured."""
    packing = tuple((name,) for name in classes.values())
    return PackingPeriod("n0g0", classes, packing, 0.0, to_s=20.0, settings=[(0.0, ()), (10.0, SLOW)])


def counted(**rates: int) -> RunEnergy:
    """Joules at a constant 100 W, with the iterations a second of each job."""
    session = Session(0.0, "n0g0", "a meter", "measured", "gpu", "about it", 0.1, 40.0)
    lines: list[Line] = [session]
    for at_s in range(21):
        done = {f"{job}#1": AttemptProgress(0, at_s, rate * at_s, 0, at_s) for job, rate in rates.items()}
        lines.append(Sample(at_s, METER_W * at_s, jobs=done, device="n0g0"))
    return RunEnergy.of_lines(["n0g0"], lines, lambda _job: None)


def test_where_no_trial_tells_the_iterations_do() -> None:
    """Two iterations a second of 60 J each alone: 1200 J at the default for work that took 1000 J at the setting."""
    known = PackingTimeline([at_slow(j="a")], {"a": Solo("a", 0.5, 120.0)})
    found = baseline([], {}, known, counted(j=2), 20.0)
    assert found.packed_default_energy_j == pytest.approx(2000.0 - 1000.0 + 20 * 60.0)
    unknown = PackingTimeline([at_slow(j="a")], {})
    assert baseline([], {}, unknown, counted(j=2), 20.0).packed_default_energy_j is None


def test_where_no_trial_tells_of_a_pair_what_was_foreseen_does() -> None:
    """Expected: 150 W for 0.75 of 120 W of work of each: 5/6 of a joule for one of work alone."""
    pair = at_slow(j="a", k="b")
    pair.expected, pair.expected_w = {"j": 0.75, "k": 0.75}, 150.0
    solos = {"a": Solo("a", 0.5, 120.0), "b": Solo("b", 0.25, 120.0)}
    found = baseline([], {}, PackingTimeline([pair], solos), counted(j=1, k=2), 20.0)
    assert found.packed_default_energy_j == pytest.approx(1000.0 + (10 * 60.0 + 20 * 30.0) * 5 / 6)
    pair.expected_w = None
    assert baseline([], {}, PackingTimeline([pair], solos), counted(j=1, k=2), 20.0).packed_default_energy_j is None


def test_without_a_meter_nothing_is_claimed() -> None:
    entries, jobs = searched()
    summary = summarise(plan(jobs, ENERGY), RunHistory(entries), RunEnergy(), "r")
    assert summary.baseline.packed_default_energy_j is summary.search_energy_j is None
    assert [each.energy_j for each in summary.packings] == [None]


def done(name: str, iterations: int, **more: Any) -> JobSummary:
    """Job of which the iterations would have taken 0.5 s each alone, with a standard error of 1 %."""
    alone_s = 0.5 * iterations
    told: dict[str, Any] = {"alone_s": alone_s, "alone_error_s": 0.01 * alone_s, "alone_guessed_s": 0.0, **more}
    job_class = told.pop("job_class", "c")
    return JobSummary(name, job_class, attempts=1, arrival_s=told.pop("arrival_s", 0.0), iterations=iterations, **told)


assert PROFILE.train is not None
KNOWN = {"c": PROFILE.model_copy(update={"eval": None, "train": PROFILE.train.model_copy(update={"mean_s": 0.5})})}
"""Profile of 4.25 J an iteration of 0.5 s."""


def alone(*jobs: JobSummary, profiles: Any = KNOWN, energy: RunEnergy | None = None, **more: Any) -> Baseline:
    found = baseline(jobs, profiles, packing_timeline([]), metered(10.0) if energy is None else energy, 10.0, **more)
    assert found.source == "predicted"
    return found


def test_one_after_the_other_each_job_takes_its_time_alone() -> None:
    found = alone(done("a", 10), done("b", 20))
    assert found.exclusive_energy_j == pytest.approx(30 * 4.25)
    assert found.exclusive_makespan_s == pytest.approx(15.0)
    assert found.exclusive_makespan_error_s == pytest.approx(0.15), "jobs of one class share their error"
    assert alone(done("a", 10, arrival_s=1.0), done("b", 20, arrival_s=100.0)).exclusive_makespan_s == pytest.approx(
        109.0
    )
    assert alone(JobSummary("never", "c"), done("a", 10)).exclusive_energy_j == pytest.approx(42.5)


def test_each_job_alone_loads_torch_and_prepares_its_data() -> None:
    """Else sharing would seem to cost the start of an interpreter, which the run's own makespan includes."""
    jobs = [done(name, 10, preparation_s=1.5) for name in ("forked", "fresh")]
    planned = {
        "forked": JobDocument(name="forked", job_class="c", slowdown_limit=None, isolation="process"),
        "fresh": JobDocument(name="fresh", job_class="c", slowdown_limit=None, isolation="fresh"),
    }
    energy = metered(10.0)
    assert energy.session is not None and energy.session.idle_w
    found = alone(*jobs, energy=energy, planned=planned, load_s=3.0, others_busy=0.2)
    assert found.exclusive_starts_s == pytest.approx(3.0 + 1.5 + 1.5), "one of them has loaded torch in its preparation"
    assert found.exclusive_makespan_s == pytest.approx(20 * 0.5 + 6.0)
    assert found.exclusive_energy_j == pytest.approx(20 * 4.25 + 6.0 * energy.session.idle_w)
    assert found.exclusive_makespan_error_s == pytest.approx(math.hypot(0.1, 0.2 * 3.0)), "torch may load faster"


def test_the_starts_of_the_device_that_ends_last_are_a_part_of_its_time() -> None:
    """The sum over all devices was more than the whole; so was all work of a job without an iteration that is seen."""
    (account,) = metered(10.0).devices.values()
    jobs = [done("a", 10, preparation_s=1.0), done("b", 4, preparation_s=2.0), done("c", 4, preparation_s=3.0)]
    found = alone(*jobs, energy=RunEnergy({"cpu:0": account, "cpu:1": account}), load_s=0.5)
    assert found.exclusive_makespan_s == pytest.approx(2.5 + 2.0 + 3.5 + 2.0)
    assert found.exclusive_starts_s == pytest.approx(2.5 + 3.5)
    unseen = done("d", 0, state="completed", preparation_s=40.0)
    found = alone(done("a", 10, preparation_s=1.0), unseen, load_s=0.5)
    assert found.exclusive_makespan_s == pytest.approx(6.5 + 40.5) and found.exclusive_starts_s == pytest.approx(2.0)


def test_joules_alone_follow_from_the_run() -> None:
    """If all were those of the profile, a machine that is slower today would make sharing seem to cost joules."""
    energy = metered(10.0)
    assert energy.session is not None and energy.session.idle_w
    idle_w = energy.session.idle_w
    found = alone(done("a", 10, alone_s=15.0, alone_error_s=0.15), energy=energy)
    assert found.exclusive_energy_j == pytest.approx(10 * 4.25 + (15.0 - 5.0) * idle_w), "idle for longer"
    lone = {"alone_error_s": 0.0, "beside_s": 0.0, "prepared_beside_s": 0.0, "energy_per_iteration_j": 7.0}
    found = alone(done("a", 10, **lone), energy=energy)
    assert found.exclusive_energy_j == pytest.approx(10 * 7.0 + 5.0 * idle_w), "it met no other job"
    assert found.exclusive_energy_error_j == 0.0
    modelled = RunEnergy(
        {
            name: replace(account, session=replace(energy.session, source=MODELLED))
            for name, account in energy.devices.items()
        }
    )
    found = alone(done("a", 10, alone_error_s=0.0, beside_s=2.5, energy_per_iteration_j=7.0), energy=modelled)
    assert found.exclusive_energy_j == pytest.approx(10 * 7.0 + 5.0 * idle_w), "whatever the profile says"
    assert found.exclusive_energy_error_j == pytest.approx(0.1 * 0.5 * 70.0), "half of its time was beside others"


def test_joules_alone_are_not_known_without_a_profile_of_the_same_kind_of_joules() -> None:
    assert alone().exclusive_makespan_s is None
    found = alone(done("a", 10), done("b", 10, job_class="d"))
    assert found.exclusive_energy_j is None
    assert found.exclusive_makespan_s == pytest.approx(10.0)
    assert alone(done("a", 10), energy=RunEnergy()).exclusive_energy_j is None
    energy = PROFILE.energy.model_copy(update={"source": "modelled"}) if PROFILE.energy is not None else None
    modelled = {"c": KNOWN["c"].model_copy(update={"energy": energy})}
    assert alone(done("a", 10), profiles=modelled).exclusive_energy_j is None, "a model's joules against measured ones"


def test_jobs_that_did_nothing_have_no_baseline() -> None:
    """Five scripts that failed after their first step had saved 67 % of the time that it takes to load torch."""
    failed = [done(name, 1, state="failed", preparation_s=1.0) for name in "ab"]
    assert alone(*failed, load_s=3.0).exclusive_makespan_s is None
    assert alone(*failed, done("c", 0, preparation_s=1.0), load_s=3.0).exclusive_makespan_s == pytest.approx(13.0)


def test_a_guess_of_more_than_half_of_the_time_is_no_baseline() -> None:
    """The reason names a command, and the job's arguments are quoted in it."""
    args = ["--name", "two words"]
    planned = {"b": JobDocument(name="b", job_class="d", slowdown_limit=None, script="b.py", args=args)}
    of_b: dict[str, Any] = {"job_class": "d", "alone_guessed_s": 8.0}
    found = alone(done("a", 10), done("b", 16, **of_b), planned=planned)
    assert found.exclusive_makespan_s is None
    assert found.unknown == (
        "no iteration of b was alone, and no profile tells its time; "
        "`ecoshare profile b.py -- --name 'two words'` measures it",
    )
    assert alone(done("a", 20), done("b", 16, **of_b), planned=planned).exclusive_makespan_s == pytest.approx(18.0)


def test_what_the_log_does_not_follow_from_is_left_out() -> None:
    entries = entries_of([job("a0", "a", 200.0), job("b0", "b", 200.0)], world(ab=0.9), ENERGY)
    commands = [place for place, entry in enumerate(entries) if isinstance(entry, Command)]
    place = commands[len(commands) // 2]
    other = [*entries[:place], *entries[place + 1 :]]
    whole, part = packing_timeline(entries), packing_timeline(other)
    assert whole.differs_s is None and part.differs_s is not None
    assert all(each.to_s is not None and each.to_s <= part.differs_s for each in part.stretches)
    known = [each for each in whole.stretches if each.to_s is not None and each.to_s < part.differs_s]
    assert part.stretches[: len(known)] == known


@pytest.mark.slow
@given(JOBS, SPEEDS, st.sampled_from((*PACKS, "fair")), st.integers(1, 3), st.booleans())
def test_stretches_of_a_device_follow_each_other_and_hold_the_time_of_every_job(
    jobs: list[TraceJob], speeds: dict[str, float], policy: str, lanes: int, profile: bool
) -> None:
    _, log = simulated(jobs, world(**speeds), Config(policy, lanes, 4, profile=profile), 2, Costs())
    found = packing_timeline([each for event, commands in log for each in (event, *commands)])
    assert found.differs_s is None
    for device in {each.device for each in found.stretches}:
        own = [each for each in found.stretches if each.device == device]
        for before, after in pairwise(own):
            assert before.to_s is not None and before.to_s <= after.from_s
    assert all(each.to_s is not None and each.ending is not None for each in found.stretches), "all jobs have ended"
    ran = {name for each in found.stretches for name in each.jobs}
    long_ones = {each.name for each in jobs if each.phases[0].iterations > 300}
    assert long_ones <= ran, "a job that ran for half a minute is in no packing"
    assert all(math.isclose(speed, 1.0) for each in found.stretches if len(each.jobs) == 1 for speed in _speeds(each))


def _speeds(stretch: PackingPeriod) -> list[float]:
    return list(stretch.expected.values())


def summary_of(**changes: Any) -> RunSummary:
    baseline = Baseline(exclusive_energy_j=200.0, exclusive_makespan_s=50.0, packed_default_energy_j=160.0)
    jobs = (JobSummary("a", "c", slowdown=1.5, slowdown_limit=1.25, slowdown_limit_met=False),)
    settings = (SettingPeriod("cuda:0", {"gpu_clock": 1200.0}, 0.0),)
    made = {"baseline": baseline, "energy": energy_of(1.0), "makespan_s": 55.0, "settings": settings, "jobs": jobs}
    return RunSummary("r", "energy", "energy", (), 1, "completed", **{**made, **changes})


def energy_of(covered: float) -> DeviceEnergy:
    return DeviceEnergy(150.0, "measured", "gpu", covered=covered)


def test_the_verdicts_say_by_how_much() -> None:
    assert verdicts(summary_of()) == [
        "packed as it was at the default setting, predicted: 160 J (6.2 % less here)",
        "limits: 0 of 1 kept; broken: a was 1.50 times slower, 20 % over its 1.25",
    ]


def test_the_verdict_on_slowdown_limits_says_that_a_power_budget_goes_before_them() -> None:
    for by, told in ((BY_LIMITS, True), (BY_PLACEMENT, False)):
        line = verdicts(summary_of(power_budget=BudgetSummary(200.0, by, None)))[-1]
        assert line.endswith("over its 1.25; the power budget goes before them") is told


def test_there_is_no_verdict_of_what_is_not_known() -> None:
    assert verdicts(summary_of(jobs=(JobSummary("a", "c"),), baseline=Baseline(), energy=None)) == []
    part = summary_of(energy=energy_of(0.5))
    assert not any("200 J" in line or "160 J" in line for line in verdicts(part)), "of half of the time"
