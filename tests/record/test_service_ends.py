"""States of open-ended services in the summary of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.base.attempt import WORK_OVER, Outcome, Usage
from ecoshare.base.service import RequestSource, ServiceSpec, service_as_dict
from ecoshare.core.events import JobExited
from ecoshare.core.job_ends import KILLED
from ecoshare.record.plan_document import JobDocument, ServiceDocument
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.results.run_summary import is_open_ended, served_to_the_end
from ecoshare.record.run_documents import read_plan
from ecoshare.record.run_history import AttemptHistory, JobHistory
from tests.golden.archive import run_folder
from tests.record.test_old_runs import OLD


def history(outcome: Outcome | None, exit_code: int = 143) -> JobHistory:
    found = JobHistory("s")
    if outcome is not None:
        found.exited(JobExited(1.0, "s", 1, outcome, exit_code, "", Usage()))
    return found


@pytest.mark.parametrize(
    ("others", "state"),
    [
        (["completed"], "completed"),
        (["completed", "failed", "pruned"], "completed"),
        (["completed", "cancelled"], "cancelled"),
        (["completed", "running"], "cancelled"),
    ],
)
@pytest.mark.parametrize("outcome", [Outcome.STOPPED, None])
def test_a_service_has_completed_when_all_others_have_ended(
    others: list[str], state: str, outcome: Outcome | None
) -> None:
    """Without an end, too: the controller was killed while the service ended, and a resumed run has nothing to do."""
    jobs = [JobSummary("s", "c", "cancelled", error="x"), JobSummary("a", "c", "cancelled", error="x")]
    own = {"s": history(outcome), "a": JobHistory("a")}
    found, by_user = served_to_the_end(jobs, {"s"}, others, own, stopped=False)
    assert [each.state for each in found] == [state, "cancelled"] and not by_user
    assert found[0].error == (None if state == "completed" else "x")


@pytest.mark.parametrize(
    ("exit_code", "stopped", "state"),
    [(143, True, "completed"), (0, True, "completed"), (KILLED, True, "cancelled"), (143, False, "cancelled")],
)
def test_services_alone_complete_at_ctrl_c(exit_code: int, stopped: bool, state: str) -> None:
    own = {"s": history(Outcome.STOPPED, exit_code)}
    found, by_user = served_to_the_end([JobSummary("s", "c", "cancelled")], {"s"}, [], own, stopped)
    assert (found[0].state, by_user) == (state, state == "completed")


def test_a_failed_service_stays_failed() -> None:
    own = {"s": history(Outcome.FAILED, 1)}
    found, _ = served_to_the_end([JobSummary("s", "c", "failed")], {"s"}, ["completed"], own, stopped=False)
    assert found[0].state == "failed"


def test_plans_with_and_without_services(tmp_path: Path) -> None:
    """If it failed, old run folders could not be read, or a service with a last request would count as open-ended."""
    for name in OLD:
        assert not any(is_open_ended(job) for job in read_plan(run_folder(name, tmp_path / name) / "plan.json").jobs)
    for service in (ServiceSpec(0.05), ServiceSpec(0.05, requests=RequestSource(count=1))):
        document = ServiceDocument(**service_as_dict(service))
        job = JobDocument(name="s", job_class="c", slowdown_limit=None, service=document)
        assert is_open_ended(job) == service.is_open_ended
    assert not is_open_ended(JobDocument(name="a", job_class="c", slowdown_limit=None))


@pytest.mark.parametrize(
    ("outcome", "reason", "badly"),
    [
        (None, "", False),
        (Outcome.COMPLETED, "", False),
        (Outcome.PRUNED, "it is not among the best", False),
        (Outcome.STOPPED, WORK_OVER, False),
        (Outcome.STOPPED, "the run was stopped", True),
        (Outcome.FAILED, "exit code 1", True),
    ],
)
def test_the_charts_have_a_cross_only_where_an_attempt_ended_badly(
    outcome: Outcome | None, reason: str, badly: bool
) -> None:
    """A service that served until all other jobs had ended has a cross in no chart."""
    assert AttemptHistory("s", 1, (0,), 0.0, outcome=outcome, reason=reason).ended_badly is badly
