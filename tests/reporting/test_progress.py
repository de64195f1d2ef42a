"""Services and sweeps in the displays of a run that goes on."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import pairwise

import pytest
from rich.console import Console

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.service import ServiceSpec
from ecoshare.core.events import JobArrived, JobExited
from ecoshare.record.run_view import JobView, RunView, ServiceStatus, SweepView
from ecoshare.reporting.progress import LiveProgress, PlainProgress

TRAINS = JobView("trains", "running", (0,), True, 120, 0, 600, 40.0, 1.1)


def serving(p99_s: float | None, unanswered: int = 0) -> JobView:
    told = ServiceStatus(target_s=0.05, arrived=900, late=19, unanswered=unanswered, p99_s=p99_s)
    return JobView("ranker", "running", (0,), False, 0, 681, None, None, None, service=told)


def shown(*jobs: JobView, width: int = 100) -> str:
    """Text of the live table, without its colours."""
    text = io.StringIO()
    live = LiveProgress(Console(file=text, width=width, force_terminal=True, color_system=None))
    live.show(RunView(10.0, jobs, stopping=False, warm=True))
    live.close()
    return text.getvalue()


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (serving(0.0923), "ranker 900 requests, 19 late, p99 now 92.3 ms of 50 ms | trains 120/600 (40.0/s)"),
        (serving(None, 3), "ranker 900 requests, 19 late, 3 unanswered, p99 now - of 50 ms | trains 120/600 (40.0/s)"),
    ],
)
def test_a_line_about_a_service_has_its_requests_and_its_target(job: JobView, words: str) -> None:
    text = io.StringIO()
    PlainProgress(Console(file=text)).show(RunView(10.0, (job, TRAINS), stopping=False, warm=True))
    assert text.getvalue().rstrip().endswith(f"s  {words}")


def test_the_live_table_has_columns_for_services_only_if_there_are_any() -> None:
    heading, service, trains = (line.split() for line in shown(serving(0.0923), TRAINS).splitlines()[1:4])
    assert heading[-5:] == ["requests", "late", "unanswered", "p99", "now"]
    assert service[-7:] == ["900", "19", "0", "92.3", "ms", "of", "50", "ms"][1:]
    assert "681" not in " ".join(service), "iterations of evaluation are no progress of a service"
    assert trains[-1] == "1.10", "a job that trains has no requests"
    assert "requests" not in shown(TRAINS)


@pytest.mark.parametrize("width", [70, 80])
def test_a_narrow_terminal_keeps_requests_and_target(width: int) -> None:
    lines = shown(serving(0.0923, unanswered=7), TRAINS, width=width).splitlines()
    assert all(len(line) <= width for line in lines)
    assert any("900" in line and "92.3 ms of 50 ms" in line for line in lines)


def test_the_end_of_a_service_counts_no_iterations() -> None:
    text = io.StringIO()
    lines = PlainProgress(Console(file=text))
    for name, service in (("ranker", ServiceSpec(0.05)), ("trains", None)):
        lines.event(JobArrived(0.0, JobSpec(name, "class", service=service)), [])
        lines.event(JobExited(9.0, name, 1, Outcome.COMPLETED, 0, "", Usage(iterations=3, eval_iterations=681)), [])
    first, second = text.getvalue().splitlines()
    assert first.endswith("ranker: completed")
    assert second.endswith("trains: completed (3 iterations, 681 of evaluation)")


def test_iterations_that_are_steps_of_optimizers_are_called_so() -> None:
    """If it failed, a pass of a GAN's loop would be told as two iterations."""
    gan, text = replace(TRAINS, name="gan", by_steps=True), io.StringIO()
    first, second = shown(gan, TRAINS).splitlines()[2:4]
    assert "120/600 optimizer steps" in first and "120/600  " in second
    lines = PlainProgress(Console(file=text))
    lines.show(RunView(10.0, (gan,), stopping=False, warm=True))
    lines.event(JobExited(9.0, "gan", 1, Outcome.COMPLETED, 0, "", Usage(iterations=1, by_steps=True)), [])
    first, second = text.getvalue().splitlines()
    assert first.endswith("gan 120/600 optimizer steps (40.0/s)") and second.endswith("completed (1 optimizer step)")


def test_a_job_that_waits_for_long_says_behind_which_and_has_no_rate() -> None:
    """A minute without a turn was shown with the rate before it."""
    waits, text = replace(TRAINS, holding=False, rate=None, turn_wait_s=40.3, behind=("gnn",)), io.StringIO()
    assert "waits behind gnn for 40 s" in shown(waits)
    PlainProgress(Console(file=text)).show(RunView(10.0, (waits,), stopping=False, warm=True))
    assert text.getvalue().rstrip().endswith("trains 120/600 waits behind gnn for 40 s")


def test_trials_of_a_sweep_show_their_metric() -> None:
    trial = replace(TRAINS, name="s.0003", metric=("val_loss={:f}", 0.12345))
    heading, first, other = (line.split() for line in shown(trial, TRAINS).splitlines()[1:4])
    assert heading[-1] == "val_loss" and first[-1] == "0.123" and other[-1] == "1.10"
    text = io.StringIO()
    PlainProgress(Console(file=text)).show(RunView(10.0, (trial,), stopping=False, warm=True))
    assert text.getvalue().rstrip().endswith("s.0003 120/600 (40.0/s) val_loss 0.123")


def test_lines_about_a_sweep_come_when_trials_end_and_never_too_often() -> None:
    """In a pipe, a sweep of short trials showed nothing for ten seconds, and might be over by then."""
    lines = PlainProgress(Console(file=io.StringIO()))
    lines.event(JobArrived(0.0, JobSpec("s.0000", "class", sweep="s")), [])
    view = RunView(0.0, (), stopping=False, warm=True, sweeps=(SweepView("s", 9, {"completed": 1}, None),))
    said_s = []
    for tenth in range(4000):
        at_s = tenth / 10
        if at_s < 300.0:
            lines.event(JobExited(at_s, "s.0000", 1, Outcome.COMPLETED, 0, "", Usage()), [])
        if lines.is_due(at_s):
            lines.show(replace(view, at_s=at_s))
            said_s.append(at_s)
    gaps_s = [then - before for before, then in pairwise(said_s)]
    assert said_s[0] == 1.0 and min(gaps_s) >= 1.0 and max(gaps_s) <= 10.0 and len(gaps_s) < 90
