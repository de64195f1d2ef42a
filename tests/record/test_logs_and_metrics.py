"""Output of jobs for a report: whatever jobs write, and however much of it, the result is small and safe to show."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.job_spec import JobSpec
from ecoshare.core.events import JobArrived, Reported
from ecoshare.record.logs_and_metrics import MOST_CURVES, MOST_FAILURES, MOST_METRICS, JobOutput, failures, read_output
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.results.run_summary import DeviceSummary, RunSummary
from ecoshare.record.results.sweep_summary import SweepSummary
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.run_history import RunHistory


def output(path: Path, jobs: list[JobSummary], history: RunHistory | None = None, **fields: Any) -> JobOutput:
    summary = RunSummary("r", "energy", "fair", (DeviceSummary({"name": "cpu"}),), 1, "failed", jobs=tuple(jobs))
    return read_output(replace(summary, **fields), history or RunHistory(), RunFolder(path))


def wrote(path: Path, job: str, name: str, content: str | bytes) -> None:
    file = path / "jobs" / job / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())


def reported(path: Path, job: str, *values: dict[str, float], attempt: str = "") -> None:
    wrote(path, job, f"reports{attempt}.jsonl", "".join(json.dumps(each) + "\n" for each in values))


def failed(name: str, error: str = "it failed", **fields: Any) -> JobSummary:
    return JobSummary(name, "c", "failed", attempts=1, error=error, **fields)


def done(name: str, **fields: Any) -> JobSummary:
    return JobSummary(name, "c", "completed", **{"attempts": 1, **fields})


@pytest.mark.parametrize(
    ("content", "lines", "is_whole"),
    [
        ("a\nb\n\n\n", ("a", "b"), True),
        ("no end of line", ("no end of line",), True),
        ("".join(f"{number}\n" for number in range(1000)), tuple(map(str, range(980, 1000))), False),
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07text\n", ("red text",), True),
        ("\r1/9 [#  ]\r9/9 [###]\nend\n", ("9/9 [###]", "end"), True),
        (b"\xff\x00\x9b31m\n", ("\ufffd\\x00\ufffd31m",), True),
        ("x" * 10_000_000, ("x" * 399 + "…",), False),
        ("\n \n", None, True),
    ],
)
def test_the_end_of_a_log_is_short_and_has_no_control_characters(
    tmp_path: Path, content: str | bytes, lines: tuple[str, ...] | None, is_whole: bool
) -> None:
    wrote(tmp_path, "bad", "stderr.log", content)
    ends = output(tmp_path, [failed("bad")]).log_ends["bad"]
    assert [(each.file, each.lines, each.is_whole) for each in ends] == (
        [("stderr.log", lines, is_whole)] if lines else []
    )


def test_the_log_of_a_gang_is_that_of_the_rank_that_ended_it(tmp_path: Path) -> None:
    wrote(tmp_path, "gang", "stderr.log", "the first rank\n")
    wrote(tmp_path, "gang/rank-2", "stderr.log", "the third rank\n")
    (end,) = output(tmp_path, [failed("gang", "rank 2: KeyError: 'x'")]).log_ends["gang"]
    assert end.lines == ("the third rank",)


def test_of_very_many_failures_there_is_one_of_each_reason(tmp_path: Path) -> None:
    jobs = [failed(f"job{number}", "the disk is full" if number < 300 else f"reason {number}") for number in range(305)]
    for job in jobs:
        wrote(tmp_path, job.name, "stderr.log", "words\n")
    cancelled = JobSummary("c", "c", "cancelled", attempts=1, error="it was cancelled")
    told = output(tmp_path, [cancelled, *jobs])
    assert len(told.log_ends) == MOST_FAILURES
    assert list(told.log_ends)[:6] == ["job0", *(f"job{number}" for number in range(300, 305))]
    summary = RunSummary("r", "energy", "fair", (), 1, "failed", jobs=(cancelled, *jobs, done("d")))
    assert failures(summary)[-1] is cancelled and len(failures(summary)) == 306


@pytest.mark.nightly
def test_a_curve_of_very_many_values_keeps_few_and_the_last(tmp_path: Path) -> None:
    reported(tmp_path, "a", *({"loss": 1.0 / number} for number in range(1, 50_001)))
    ((metric,), more) = (told := output(tmp_path, [done("a")])).metrics, told.more_metrics
    (curve,) = metric.curves
    assert curve.count == curve.steps[-1] == 50_000 and curve.values[-1] == 1.0 / 50_000
    assert 100 <= len(curve.steps) <= 201 and curve.values[:2] == (1.0, 1.0 / curve.steps[1])
    assert not curve.is_cut and more == 0


def test_lines_that_are_damaged_or_no_reports_are_passed_over(tmp_path: Path) -> None:
    lines = ['{"loss": 3}', "[1, 2]", '{"loss": "x"}', "\x00\xff", "{" * 5000, '{"loss": NaN}', '{"loss": 1}', '{"lo']
    wrote(tmp_path, "a", "reports.jsonl", "\n".join(lines))
    (metric,) = output(tmp_path, [done("a")]).metrics
    assert metric.name == "loss" and str(metric.curves[0].values) == "(3.0, nan, 1.0)"


def test_metrics_and_jobs_of_one_chart_are_bounded_and_counted(tmp_path: Path) -> None:
    for number in range(40):
        names = [f"m{each}" for each in range(20)] if number < 3 else ["loss"]
        reported(tmp_path, f"job{number}", dict.fromkeys(names, 1.0), dict.fromkeys(names, 2.0))
    told = output(tmp_path, [done(f"job{number}") for number in range(40)])
    assert len(told.metrics) == MOST_METRICS and told.more_metrics == 21 - MOST_METRICS
    assert told.metrics[0].name == "loss", "the metric that most jobs have comes first"
    assert len(told.metrics[0].curves) == MOST_CURVES and told.metrics[0].left_out == 37 - MOST_CURVES


def test_a_metric_that_begins_late_is_found(tmp_path: Path) -> None:
    reported(tmp_path, "a", *[{"train_loss": 1.0}] * 1000, {"val_loss": 0.5})
    assert [each.name for each in output(tmp_path, [done("a")]).metrics] == ["train_loss", "val_loss"]


def test_a_job_that_goes_on_elsewhere_has_one_curve_and_one_that_begins_again_that_of_its_last_attempt(
    tmp_path: Path,
) -> None:
    for name in ("goes", "again"):
        reported(tmp_path, name, {"loss": 3.0}, {"loss": 2.0})
        reported(tmp_path, name, {"loss": 1.0}, attempt=".attempt-2")
    arrived = [JobArrived(0.0, JobSpec(name, "c", movable=name == "goes")) for name in ("goes", "again")]
    (metric,) = output(tmp_path, [done("goes", attempts=2), done("again", attempts=2)], RunHistory(arrived)).metrics
    assert {each.job: each.values for each in metric.curves} == {"goes": (3.0, 2.0, 1.0), "again": (1.0,)}


def test_a_metric_that_trials_print_is_that_of_the_log_and_the_best_trials_come_first(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(MOST_CURVES + 5)]
    history = RunHistory([JobArrived(0.0, JobSpec(name, "c", sweep="lrs")) for name in names])
    jobs = []
    for number, name in enumerate(names):
        for step in (1, 2):
            history.add_unlogged(Reported(float(step), name, step, float(number * step)))
        jobs.append(done(name, sweep="lrs", value=2.0 * number))
    sweep = SweepSummary("lrs", "grid", metric="acc={:f}", goal="maximize")
    (metric,) = output(tmp_path, jobs, history, sweeps=(sweep,)).metrics
    assert [each.job for each in metric.curves] == names[: -MOST_CURVES - 1 : -1] and metric.left_out == 5
    assert metric.name == "acc={:f}" and metric.curves[0].values == (16.0, 32.0)
