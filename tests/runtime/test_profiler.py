"""The profiler of a run marks profiles that a job was faster than, in the store and in what the run returns."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.profiling.profile_store import ProfileStore
from ecoshare.record.job_summary import JobSummary
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.profiler import Profiler
from ecoshare.runtime.profiling_window import Limits
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
