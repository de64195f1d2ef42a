"""The profiler of a run marks profiles that a job was faster than, in the store and in what the run returns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.measuring.profiler import Profiler
from ecoshare.runtime.measuring.profiling_window import Limits
from tests.reporting.profiles import PROFILE

FASTER = "ran 1.4 times as fast as its profile says it runs alone"


@pytest.mark.parametrize("doubt", ["", FASTER])
def test_what_a_run_returns_is_what_it_stored(tmp_path: Path, doubt: str) -> None:
    """Before, a job that was faster before its window than in it had a doubt in the store, and none in the result."""
    store = ProfileStore(tmp_path / "profiles")
    store.save(PROFILE)
    profiler = Profiler(RunFolder(tmp_path / "run"), store, Limits(), made={PROFILE.job_class: PROFILE})
    profiler.doubt([JobSummary("a", PROFILE.job_class, profile_doubt=doubt)])
    kept = store.find(PROFILE.job_class)
    assert profiler.made == {PROFILE.job_class: kept}
    assert kept is not None and kept.doubt == (f"a {doubt}" if doubt else "")


def test_an_older_profile_is_doubted_and_not_returned(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path / "profiles")
    store.save(PROFILE)
    profiler = Profiler(RunFolder(tmp_path / "run"), store, Limits())
    profiler.doubt([JobSummary("a", PROFILE.job_class, profile_doubt=FASTER)])
    kept = store.find(PROFILE.job_class)
    assert not profiler.made and kept is not None and kept.doubt == f"a {FASTER}"


@pytest.mark.parametrize(
    ("job", "again"),
    [
        (JobSummary("a", PROFILE.job_class, iterations=500, held_s=9.0, preparation_s=0.5), "measured again in the"),
        (JobSummary("a", PROFILE.job_class, iterations=500, held_s=1.9, preparation_s=0.5), "its work of 1.4 s is too"),
        (JobSummary("a", PROFILE.job_class, iterations=20, held_s=9.0, preparation_s=0.5), "its work of 8.5 s is too"),
        (JobSummary("a", PROFILE.job_class, "cancelled", iterations=20, held_s=1.0), "measured again in the next run"),
    ],
    ids=["long", "short", "few iterations", "stopped"],
)
def test_no_measurement_is_promised_that_cannot_come(tmp_path: Path, job: JobSummary, again: str) -> None:
    """Run after run said "it is measured again in the next run" of a job that ends before a window can."""
    doubted = PROFILE.model_copy(update={"doubt": "other programs kept 1.5 of 2 processors busy"})
    profiler = Profiler(RunFolder(tmp_path / "run"), ProfileStore(tmp_path / "profiles"), Limits())
    profiler.take(doubted, "a")
    profiler.doubt([job])
    (note,) = profiler.notes
    assert note.startswith(f"{doubted.doubt} while a was measured: ") and again in note
    profiler.notes.clear()
    ProfileStore(tmp_path / "profiles").save(PROFILE)
    profiler.doubt([replace(job, profile_doubt=FASTER)])
    (note,) = profiler.notes
    assert note.startswith(f"a {FASTER}: ") and again in note
