"""`ecoshare explain`."""

from __future__ import annotations

from ecoshare.base.disk import RUNS
from ecoshare.cli.named_runs import JobOfRunArgument, OneQueueOption, RunOrJobArgument, RunsFolderOption, named_job
from ecoshare.cli.options import JsonOption


def explain(
    run: RunOrJobArgument = None,
    job: JobOfRunArgument = None,
    queue: OneQueueOption = None,
    runs: RunsFolderOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Tell why each job of a run waited, shared the device or ran alone, and what came of it; or one job in full."""
    from ecoshare.reporting.explanation_text import show

    named = named_job([each for each in (run, job) if each is not None], runs, queue)
    show(named.run, named.job, as_json)
