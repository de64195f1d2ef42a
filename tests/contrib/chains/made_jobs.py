"""Jobs of batch queues that tests make."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from ecoshare.contrib.chains.logs.batch_job import BatchJob

GPUS = 6


def job(name: str, submit_s: float, gpus: int, run_s: float, limit_s: float | None = None) -> BatchJob:
    return BatchJob(name, submit_s, gpus, run_s, run_s if limit_s is None else limit_s)


@st.composite
def job_lists(draw: st.DrawFn, exact: bool = False, most: int = 14) -> list[BatchJob]:
    """Jobs of whole seconds in the order of submission; with `exact`, each takes its limit."""
    count = draw(st.integers(1, most))
    submits = sorted(draw(st.lists(st.integers(0, 40), min_size=count, max_size=count)))
    jobs = []
    for number, submit_s in enumerate(submits):
        limit_s = draw(st.integers(1, 30))
        run_s = limit_s if exact else draw(st.integers(1, 40))
        jobs.append(job(f"j{number}", float(submit_s), draw(st.integers(1, GPUS)), float(run_s), float(limit_s)))
    return jobs


def most_held(jobs: Sequence[BatchJob], started_s: dict[str, float]) -> int:
    """Largest number of GPUs that jobs hold at once."""
    steps = [(started_s[each.name], each.gpus) for each in jobs]
    steps += [(started_s[each.name] + each.lasts_s, -each.gpus) for each in jobs]
    held = most = 0
    for _, change in sorted(steps):
        held += change
        most = max(most, held)
    return most
