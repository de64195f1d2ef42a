"""The store of a queue on the disk, and names that jobs get."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.queue.job_store import JobEnd, JobStore
from ecoshare.queue.queue_documents import Submission
from ecoshare.queue.submission_plan import free_names, inherited


def submission(number: int, **more: object) -> Submission:
    fields = {"id": f"{number:032x}", "text": "version: 1", "file": "jobs.yaml", "folder": "/", **more}
    return Submission.model_validate(fields)


def test_jobs_end_once_and_are_found(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "queue.db")
    store.add(submission(1), [("a", "a", False), ("s", "s", True)], "run", 10.0)
    store.add(submission(2), [("a-2", "a", False)], "run", 11.0)
    assert [row.name for row in store.left()] == ["a", "s", "a-2"] and store.sweeps() == {"s"}
    store.end([JobEnd("a", "failed", 12.0, 11.0, 7, "exit code 7", 1), JobEnd("a-2", "completed", 13.0)])
    store.end([JobEnd("a", "completed", 14.0)])
    store.end([], {"s": 11.5})
    store.end([], {"s": 12.5})
    (left,) = store.left()
    assert left.started_unix_s == 11.5, "the first start counts"
    row = store.find("a")
    assert row is not None and (row.state, row.exit_code, row.ended_unix_s, row.attempts) == ("failed", 7, 12.0, 1)
    assert [each.name for each in store.left()] == ["s"] and store.count_ended() == 2
    assert [each.name for each in store.ended(1)] == ["a-2"], "the one that ended last"
    assert store.states(["a", "s", "nothing"]) == {"a": "failed"}
    store.close()
    again = JobStore(tmp_path / "queue.db")
    assert [row.name for row in again.of_submission(f"{2:032x}")] == ["a-2"] and again.submission("x") is None
    again.hold("s", True)
    again.prioritise("s", 3)
    (left,) = again.left()
    assert left.held and left.priority == 3
    again.close()


def test_jobs_run_again_and_those_behind_them_are_found(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "queue.db")
    names = ("a", "b", "c", "d", "by-user", "other")
    store.add(submission(1, held=True), [(name, name, False) for name in names], "run", 1.0)
    why = {"b": "a failed", "c": "b was cancelled", "d": "other failed"}
    store.end(JobEnd(name, "cancelled", 2.0, reason=f"{why[name]}, and had to complete first") for name in why)
    store.end(
        [JobEnd("a", "failed", 2.0, 1.5, 3, "exit code 3", 2), JobEnd("by-user", "cancelled", 2.0, reason="cancelled")]
    )
    assert [row.name for row in store.behind(["a"])] == ["b", "c"] and store.behind(["b"])[0].name == "c"
    store.retry({"a": 2, "b": 0}, {"c": "other failed, and had to complete first"}, "run-2", 3.0)
    a, b = (row for row in store.left() if row.name in "ab")
    assert (a.state, a.attempts, a.run, a.submitted_unix_s, a.started_unix_s) == (None, 2, "run-2", 3.0, None)
    assert (b.reason, b.exit_code, b.held) == ("", None, False)
    assert [row.name for row in store.behind(["other"])] == ["c", "d"]
    store.end([JobEnd("a", "completed", 4.0, attempts=3)])
    assert (found := store.find("a")) is not None and (found.state, found.attempts) == ("completed", 3)
    store.close()


def test_a_name_is_added_once_or_nothing_is(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "queue.db")
    store.add(submission(1), [("a", "a", False)], "run", 1.0)
    with pytest.raises(UsageError):
        store.add(submission(2), [("b", "b", False), ("a", "a", False)], "run", 2.0)
    assert store.names() == {"a"} and store.submission(f"{2:032x}") is None
    store.close()


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk."""
    program = f"""
import resource, signal, sys
from pathlib import Path
from ecoshare.errors import UnfitEnvironment
from ecoshare.queue.job_store import JobStore
from tests.queue.test_job_store import submission
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = JobStore(Path({str(tmp_path)!r}) / "queue.db")
store.add(submission(1), [("a", "a", False)], "run", 1.0)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
try:
    store.add(submission(2, text="x" * 1_000_000), [("b", "b", False)], "run", 2.0)
except UnfitEnvironment as error:
    print(error)
print(*store.names())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, names = done.stdout.splitlines()
    assert first.startswith("cannot write ") and names == "a"


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "queue.db").write_bytes(b"not a database, and long enough to be looked at" * 100)
    with pytest.raises(UsageError, match="not a database"):
        JobStore(tmp_path / "queue.db")


def test_names_are_free_in_the_queue_and_in_the_file() -> None:
    assert free_names(["a", "b"], {"a"}, ()) == {"a": "a-2", "b": "b"}
    assert free_names(["a", "a-2"], {"a"}, ()) == {"a": "a-3", "a-2": "a-2"}
    assert free_names(["s.0001"], {"s"}, {"s"}) == {"s.0001": "s.0001-2"}, "it would be a trial's"
    long = "x" * 100
    (given,) = free_names([long], {long}, ()).values()
    assert len(given) <= 100 and given != long


class _Looked(set[str]):
    """Names that count how often they are looked up."""

    looks = 0

    def __contains__(self, name: object) -> bool:
        self.looks += 1
        return super().__contains__(name)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 100_000])
def test_a_name_that_is_taken_often_costs_few_looks(count: int) -> None:
    taken = _Looked({"train", *(f"train-{number}" for number in range(2, count + 1))})
    assert free_names(["train"], taken, ()) == {"train": f"train-{count + 1}"}
    assert taken.looks < 40, "each look is a query, and other submissions wait meanwhile"
    assert free_names(["train"], {"train", "train-3"}, ()) == {"train": "train-2"}


def test_an_environment_is_compared_with_that_of_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in {"SAME": "1", "OTHER": "2", "OWN": "3", "ECOSHARE_RUN": "x"}.items():
        monkeypatch.setenv(name, value)
    theirs = {"SAME": "1", "OTHER": "9", "NEW": "4", "ECOSHARE_JOB": "y"}
    whole = submission(1, environment=theirs, is_whole_environment=True)
    assert inherited(whole) == {"OTHER": "9", "NEW": "4", "OWN": None}
    assert inherited(submission(1, environment=theirs)) == {"OTHER": "9", "NEW": "4"}
    assert "9" not in repr(whole) and "version" not in repr(whole), "it may hold secrets"


def test_ages_go_by_time_that_has_passed(tmp_path: Path) -> None:
    """The clock is set ahead by an hour, then a second of slewing, then a reboot, then the clock is set back."""
    store = JobStore(tmp_path / "queue.db")
    assert store.steady_unix_s(1000.0, "one", 10.0) == 1000.0
    assert store.steady_unix_s(1100.0 + 3600.0, "one", 110.0) == 1100.0
    assert store.steady_unix_s(1201.0 + 3600.0, "one", 210.0) == 1201.0
    store.close()
    store = JobStore(tmp_path / "queue.db")
    assert store.steady_unix_s(5000.0 + 3600.0, "two", 5.0) == 5000.0
    assert store.steady_unix_s(5010.0, "two", 15.0) == 5010.0
    store.close()


def test_several_may_open_a_new_store_at_once(tmp_path: Path) -> None:
    """A client that asks for a queue which is just being opened must not keep the store from it."""

    def opened(path: Path) -> JobStore:
        together.wait()
        return JobStore(path)

    together = threading.Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        for number in range(20):
            path = tmp_path / f"{number}.db"
            stores = list(pool.map(opened, [path] * 4))
            stores[0].add(submission(1), [("a", "a", False)], "run", 10.0)
            assert {store.left()[0].name for store in stores} == {"a"}
            for store in stores:
                store.close()


def test_a_store_that_cannot_be_opened_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE jobs (name TEXT)")  # not by ecoshare
        with pytest.raises(UnfitEnvironment) as failed:
            JobStore(path)
        other.execute("PRAGMA busy_timeout = 0")
        other.execute("BEGIN IMMEDIATE")
    assert "already exists" in str(failed.value)
