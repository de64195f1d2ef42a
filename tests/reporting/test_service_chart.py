"""The picture of a service, and its place in the report."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from ecoshare.core.events import TargetMissed
from ecoshare.record.run_data import RunData
from ecoshare.record.run_history import RunHistory
from ecoshare.reporting import charts, report_sections
from ecoshare.reporting.charts.look import Chart
from ecoshare.reporting.html import html
from ecoshare.reporting.report_sections import ReportInput, ReportSection
from ecoshare.reporting.time_columns import request_columns
from tests.reporting.made_run import run
from tests.reporting.made_service import TARGET_S, interval, with_service
from tests.reporting.test_html import Page

FOUND = [
    interval(20.0, [0.01, 0.02, 0.03]),
    interval(21.0, [0.01, 0.02, 0.08]),
    interval(40.0, [0.02], failed=1, refused=2),
    interval(41.0, []),
]


def drawn(data: RunData) -> Chart:
    job = next(job for job in data.summary.jobs if job.service is not None)
    with charts.settings("report"):
        return charts.service(data, job)


def test_the_lines_are_the_percentiles_of_each_second_with_gaps_while_no_request_came() -> None:
    chart = drawn(with_service(run(jobs=2), FOUND))
    assert chart.figure is not None
    latency = chart.figure.axes[0]
    p99, p50, target = (line.get_data() for line in latency.get_lines()[:3])
    assert np.asarray(p99[0])[[0, 1, 3, 4, 6, 7]].tolist() == [20.0, 21.0, 21.0, 22.0, 40.0, 41.0]
    assert np.asarray(p99[1])[[0, 3, 6]].tolist() == pytest.approx([0.03, 0.08, 0.02], rel=1e-3)
    assert np.asarray(p50[1])[[0, 3, 6]].tolist() == pytest.approx([0.02, 0.02, 0.02], rel=1e-3)
    assert np.isnan(np.asarray(p99[1])[5]), "a line joins the seconds before and after a pause"
    assert np.asarray(target[1]).tolist() == [TARGET_S] * 2


def test_late_answers_and_requests_without_answers_are_marked() -> None:
    chart = drawn(with_service(run(jobs=2), FOUND))
    assert chart.figure is not None
    late, lost = (line.get_xdata() for line in chart.figure.axes[0].get_lines()[3:])
    assert (np.asarray(late).tolist(), np.asarray(lost).tolist()) == ([21.5], [40.5])
    labels = {text.get_text() for text in chart.figure.legends[0].get_texts()}
    assert {"p50", "p99", "target 50 ms", "answered in time", "answered late", "failed or refused"} <= labels
    assert "1 late, 1 failed, 2 refused" in chart.alt


def test_below_stand_the_turns_of_the_jobs_in_its_lane_alone() -> None:
    """`job0` and `job3` are in lane 0, the other two in lane 1."""
    data = with_service(run(jobs=4, lanes=2, failing=False), FOUND)
    lanes = {each.job: each.lanes for each in data.history.attempts}
    mates = {job for job, numbers in lanes.items() if numbers == lanes["job0"]}
    chart = drawn(data)
    assert chart.figure is not None and len(chart.figure.axes) == 3
    labels = [text.get_text() for text in chart.figure.legends[0].get_texts()]
    assert {label for label in labels if label in lanes} == mates and len(mates) == 2
    assert labels.index("job0") < min(labels.index(job) for job in mates - {"job0"})


def test_many_intervals_are_thinned_and_no_request_is_lost() -> None:
    found = [interval(2.0 * at, [0.01 * (1 + at % 3)] * 2, failed=at % 2) for at in range(900)]
    thinned = request_columns(found, 200)
    assert 150 <= len(thinned) <= 200
    assert sum(sum(each.counts) for each in thinned) == sum(each.arrived for each in found)
    assert all(each.p99_s == pytest.approx(0.03, rel=1e-3) for each in thinned[:-1])
    assert all(one.to_s <= other.from_s for one, other in pairwise(thinned))


def test_intervals_of_several_processes_are_drawn_as_one_line() -> None:
    found = [interval(20.0 + 0.5 * at, [0.01]) for at in range(8)]
    drawn_as = request_columns(found, 200)
    assert [sum(each.counts) for each in drawn_as] == [2, 2, 2, 2]
    assert [each.from_s for each in drawn_as] == [20.0, 21.0, 22.0, 23.0]


def test_a_minute_in_which_the_target_was_missed_is_marked() -> None:
    data = with_service(run(jobs=2), FOUND)
    missed = replace(data, history=RunHistory([*data.history.entries, TargetMissed(590.0, "job0", 100, 9)]))
    words = "target missed for a minute"
    for each, is_told in ((missed, True), (data, False)):
        chart = drawn(each)
        assert chart.figure is not None
        assert (words in {text.get_text() for text in chart.figure.legends[0].get_texts()}) == is_told


@pytest.mark.slow
def test_the_report_has_a_row_and_a_picture_for_each_service() -> None:
    page = Page(html(with_service(run(jobs=2), FOUND)))
    assert {"services", "service-job0"} <= {each.get("id") for each in page.named("section")}
    told = page.text[page.text.index("Services") :]
    row = told[told.index("job0") : told.index("Service job0")]
    assert row[1:6] == ["50 ms", "20 ms", "30 ms", "80.1 ms", "80.1 ms"]
    assert row[6:11] == ["10", "1", "1", "2", "0.273/s"]
    assert row[11] == "1.00" and row[12].endswith("J attributed")


def of_services(data: RunData) -> list[ReportSection]:
    return list(report_sections.services_sections(ReportInput(data, [], list(data.summary.jobs))))


def test_a_service_without_requests_has_a_row_and_the_reason_for_no_picture() -> None:
    (only,) = of_services(with_service(run(jobs=2), []))
    assert (only.title, only.anchor) == ("Services", "services")
    assert "Service job0: Not known: no request has come." in only.body
    assert of_services(run(jobs=2)) == []


@pytest.mark.nightly
def test_of_many_services_those_that_kept_their_targets_worst_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_sections, "_MOST_DRAWN", 2)
    data = run(jobs=3, failing=False)
    for job, latency_s in zip(data.summary.jobs, (0.2, 0.01, 0.3), strict=True):
        data = with_service(data, [interval(30.0, [latency_s])], job.name)
    table, *drawn_ones = of_services(data)
    names = [job.name for job in data.summary.jobs]
    assert [each.anchor for each in drawn_ones] == [f"service-{names[0]}", f"service-{names[2]}"]
    assert "Drawn are the 2 services" in table.body and all(name in table.body for name in names)
