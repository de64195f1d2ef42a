"""Table of all jobs in a report."""

from __future__ import annotations

import pytest

from ecoshare.reporting.tables.job_table import LESSER, job_table
from tests.reporting.made_run import run


def test_a_narrow_page_keeps_the_most_important_columns() -> None:
    table = job_table(run().summary.jobs)
    assert [name for name in table.columns if name not in LESSER] == ["job", "state", "JCT", "slowdown", "energy"]
    assert set(table.columns) < set(table.details[0])


@pytest.mark.parametrize(("jobs", "in_sight"), [(3, 3), (35, 35), (36, 30), (200, 30)])
def test_many_jobs_fold_and_none_is_lost(jobs: int, in_sight: int) -> None:
    summary = run(jobs=jobs, period_s=120.0).summary
    table = job_table(summary.jobs)
    assert len(table.first) == in_sight
    shown = [row["job"] for row in [*table.first, *table.more]]
    assert sorted(shown) == sorted(job.name for job in summary.jobs)
    assert [row["job"] for row in table.details] == shown


def test_of_many_jobs_those_that_did_not_complete_come_first() -> None:
    table = job_table(run(jobs=60, period_s=120.0).summary.jobs)
    assert [row["state"] for row in table.first[:2]] == ["failed", "completed"] and table.sorted
    assert not job_table(run(jobs=12).summary.jobs).sorted, "few jobs stay in the order of the file"
