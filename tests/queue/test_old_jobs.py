"""The data of jobs that ended long ago are removed, in parts, and what was cut off is finished."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ecoshare.errors import UnfitEnvironment
from ecoshare.queue import old_jobs
from ecoshare.queue.job_store import JobEnd, JobStore
from ecoshare.queue.old_jobs import remove_old
from ecoshare.record import run_documents
from ecoshare.record.plan_document import JobDocument
from ecoshare.record.run_folder import RunFolder
from tests.queue.test_job_store import submission


def ended_queue(folder: Path, count: int) -> tuple[RunFolder, JobStore, Path]:
    """Run with an old segment in which so many jobs ended, the store, and the segment."""
    run = RunFolder(folder / "runs" / "r")
    run.jobs.mkdir(parents=True)
    store, names = JobStore(folder / "queue.db"), [f"j{number}" for number in range(count)]
    store.add(submission(1), [(name, name, False) for name in names], "r", 1.0)
    store.end(JobEnd(name, "completed", 2.0) for name in names)
    run_documents.append(run.submitted, (JobDocument.model_construct(name=name) for name in (*names, "stays")))
    for name in names:
        run.job(name).mkdir()
    segment = run.path / "events-1.jsonl"
    segment.write_text("")
    os.utime(segment, (3.0, 3.0))
    run.events.write_text("")
    return run, store, segment


def test_many_jobs_go_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it failed, a submission would wait for the removal of all of them."""
    monkeypatch.setattr(old_jobs, "MOST_REMOVED", 3)
    run, store, segment = ended_queue(tmp_path, 7)
    left = []
    for removed in (3, 3, 1):
        assert segment.exists() and remove_old(run, store, 10.0, ()) == removed
        left.append(store.count_ended())
    assert left == [4, 1, 0] and not segment.exists() and not list(run.jobs.iterdir())
    assert [job["name"] for job in run_documents.read(run.submitted)] == ["stays"]
    store.close()


def test_a_removal_that_was_cut_off_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, store, segment = ended_queue(tmp_path, 2)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(UnfitEnvironment):
        patch.setattr(run_documents, "drop", full)
        remove_old(run, store, 10.0, ())
    assert segment.exists()
    assert remove_old(run, store, 10.0, ()) == 2 and not segment.exists()
    assert [job["name"] for job in run_documents.read(run.submitted)] == ["stays"], "no line is left for ever"
    store.close()
