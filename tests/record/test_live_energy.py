"""Joules of a run that goes on are those that its summary will have, as far as it has got."""

from __future__ import annotations

import pytest
from hypothesis import given

from ecoshare.base.joules import ATTRIBUTED, MEASURED
from ecoshare.record.accounts.energy_account import account
from ecoshare.record.accounts.run_energy import LiveEnergy
from ecoshare.record.samples import AttemptProgress, Idle, Sample, Session
from tests.record.test_energy_account import RATES, SESSION, runs

CHIP = SESSION.device


@pytest.mark.slow
@given(runs())
def test_after_each_line_the_joules_are_those_of_the_account(lines: list[Session | Sample]) -> None:
    live = LiveEnergy(RATES.get)
    for number, line in enumerate(lines, start=1):
        live.hear(line)
        expected, reading = account(lines[:number], RATES.get), live.device(CHIP)
        if reading is not None and expected.energy is not None:
            assert reading.energy_j == pytest.approx(expected.energy.value_j) and reading.source == MEASURED
            assert reading.jobs_j == pytest.approx(sum(each.value_j for each in expected.jobs.values()))
        for job in "abc":
            known = live.job(job)
            assert (known is not None) == (job in expected.jobs)
            if known is not None:
                assert known[0] == pytest.approx(expected.jobs[job].value_j) and known[1] == ATTRIBUTED


def test_idle_watts_count_from_the_moment_at_which_they_are_known() -> None:
    live = LiveEnergy(lambda _job: None)
    live.hear(SESSION)  # 40 W
    busy = [AttemptProgress(0, float(second), second, 0, float(second)) for second in range(3)]
    live.hear(Sample(0.0, 0.0, jobs={"a#1": busy[0]}, device=CHIP))
    live.hear(Sample(1.0, 100.0, jobs={"a#1": busy[1]}, device=CHIP))
    assert live.job("a") == (60.0, ATTRIBUTED)
    live.hear(Idle(1.5, 70.0, 1.0, CHIP))
    live.hear(Sample(2.0, 200.0, jobs={"a#1": busy[2]}, device=CHIP))
    assert live.job("a") == (90.0, ATTRIBUTED)
    reading = live.device(CHIP)
    assert reading is not None and reading.power_w == pytest.approx(100.0) and reading.energy_j == pytest.approx(200.0)


def test_a_forgotten_job_has_no_joules_and_its_device_keeps_them() -> None:
    live = LiveEnergy(lambda _job: None)
    live.hear(SESSION)
    for second in range(4):
        done = {"a#1": AttemptProgress(0, float(second), second, 0, float(second))} if second < 3 else {}
        live.hear(Sample(float(second), 100.0 * second, jobs=done, device=CHIP))
    live.keep_only({"b"})
    assert live.job("a") is None
    reading = live.device(CHIP)
    assert reading is not None and reading.energy_j == pytest.approx(300.0)
    assert reading.jobs_j > 0.0, "the jobs of a device include those that have ended"
