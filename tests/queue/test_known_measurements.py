"""Measurements of earlier runs are told to the run of a queue once, and again after a submission that failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ecoshare.base.measurement import ColocationMeasurement
from ecoshare.devices import registry
from ecoshare.jobs.from_values import given_jobs
from ecoshare.queue.submission_plan import KnownMeasurements
from tests.planning import planned


def test_what_a_failed_submission_has_is_told_with_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    loaded = given_jobs([tmp_path / "a.py"], ())
    seen = ColocationMeasurement(("a", "b"), (0.9, 0.8), None)
    plan = replace(planned(loaded, (registry.find("cpu"),)), colocations=(seen,))
    known = KnownMeasurements()
    known.begin(replace(plan, colocations=()))
    assert known.new_of(plan).colocations == (seen,)
    assert known.new_of(plan).colocations == (seen,), "the first one was not kept"
    known.add(plan)
    assert known.new_of(plan).colocations == ()
    known.begin(replace(plan, colocations=()))
    assert known.new_of(plan).colocations == (seen,), "a segment knows what its opening has"
