"""Iterations of completed jobs are kept from run to run, by class and arguments."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Barrier, Thread

import pytest

from ecoshare.knowledge.iteration_store import (
    MOST_ARGUMENTS,
    MOST_COUNTS,
    IterationCount,
    IterationStore,
    JobArguments,
    LearnedIterations,
)
from ecoshare.knowledge.profiles_folder import ITERATIONS
from tests.knowledge.classes import NAME, origin


def arguments(*args: str, script: str = "/home/a/project/train.py", environment: str = "") -> JobArguments:
    return JobArguments.of(origin(script=script, args=args), environment)


def add(store: IterationStore, own: JobArguments, *iterations: int, run: str = "run") -> None:
    """Add a job for each count."""
    known = store.find(NAME)
    before = sum(len(each.counts) for each in known.counted) if known is not None else 0
    new = [(own, IterationCount(iterations=n, run=run, job=f"j{before + i}")) for i, n in enumerate(iterations)]
    store.add(NAME, origin(), new)


def learned(store: IterationStore, own: JobArguments) -> LearnedIterations | None:
    found = store.find(NAME)
    return found.of(own) if found is not None else None


def path_of(profiles: Path) -> Path:
    return profiles / ITERATIONS / f"{NAME}.json"


def test_the_median_of_equal_arguments_is_learned(tmp_path: Path) -> None:
    store = IterationStore(tmp_path)
    assert learned(store, arguments("--epochs", "3")) is None
    add(store, arguments("--epochs", "3"), 1200, 800, 1600)
    add(store, arguments("--epochs", "30"), 12_000)
    assert learned(store, arguments("--epochs", "3")) == LearnedIterations(1200, 3, 800, 1600)
    assert learned(store, arguments("--epochs", "30")) == LearnedIterations(12_000, 1, 12_000, 12_000)
    assert learned(store, arguments("--epochs", "3", script="/elsewhere/train.py")) is not None, "a moved project"
    for other in (
        arguments("--epochs", "300"),
        arguments("--epochs", "3", script="/home/a/project/other.py"),
        arguments("--epochs", "3", environment="0123456789ab"),
    ):
        assert learned(store, other) is None, other


def test_the_source_says_how_far_the_counts_differ() -> None:
    assert LearnedIterations(1200, 3, 800, 1600).source == "median of 3 completed jobs (800 to 1,600)"
    assert LearnedIterations(40, 2, 40, 40).source == "as in 2 completed jobs"
    assert LearnedIterations(40, 1, 40, 40).source == "as in 1 completed job"


def test_only_the_last_counts_are_kept(tmp_path: Path) -> None:
    """Else a change of the data set would never be followed, and the file would grow for ever."""
    store, own = IterationStore(tmp_path), arguments("a")
    add(store, own, *[100] * MOST_COUNTS)
    add(store, own, *[900] * (MOST_COUNTS // 2), run="later")
    assert learned(store, own) == LearnedIterations(100, MOST_COUNTS, 100, 900)
    add(store, own, 900, run="the last")
    assert learned(store, own) == LearnedIterations(900, MOST_COUNTS, 100, 900)


@pytest.mark.nightly
def test_only_the_last_used_arguments_are_kept(tmp_path: Path) -> None:
    store = IterationStore(tmp_path)
    for number in range(MOST_ARGUMENTS):
        add(store, arguments(str(number)), 10)
    add(store, arguments("0"), 20, run="again")
    add(store, arguments("new"), 30)
    assert learned(store, arguments("1")) is None
    assert learned(store, arguments("0")) == LearnedIterations(15, 2, 10, 20)
    found = store.find(NAME)
    assert found is not None and len(found.counted) == MOST_ARGUMENTS


def test_a_job_of_a_run_counts_once(tmp_path: Path) -> None:
    """A run that is resumed tells of its completed jobs again."""
    store, own = IterationStore(tmp_path), arguments("a")
    for run in ("first", "first", "second"):
        store.add(NAME, origin(), [(own, IterationCount(iterations=7, run=run, job="a"))])
    assert learned(store, own) == LearnedIterations(7, 2, 7, 7)


def test_all_classes_are_listed_and_forgotten_by_name(tmp_path: Path) -> None:
    store = IterationStore(tmp_path)
    assert not store.all() and store.forget(NAME) == 0
    add(store, arguments("a"), 1, 2)
    add(store, arguments("b"), 3)
    assert [(each.job_class, each.script, each.given) for each in store.all()] == [(NAME, origin().script, None)]
    assert store.forget(NAME) == 3 and store.forget(NAME) == 0
    assert store.find(NAME) is None and not store.notes


@pytest.mark.parametrize("name", ["../train", "", ".hidden", "a/b"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    """A log may hold any name."""
    store = IterationStore(tmp_path)
    assert store.find(name) is None and store.forget(name) == 0
    with pytest.raises(ValueError, match="not the name of a class"):
        store.add(name, origin(), [])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"counted": [{"arguments": {"script": "a", "args": []}, "counts": []}]}, "counted: 0: counts"),
        ({"job_class": "other-0123456789ab"}, "it is that of another class"),
        ({"more": 1}, "more"),
    ],
)
def test_a_damaged_file_is_set_aside(tmp_path: Path, damage: dict[str, object], said: str) -> None:
    add(IterationStore(tmp_path), arguments("a"), 5)
    content = json.loads(path_of(tmp_path).read_text())
    path_of(tmp_path).write_text(json.dumps({**content, **damage}))
    store = IterationStore(tmp_path)
    assert store.find(NAME) is None and said in store.notes[0]
    assert path_of(tmp_path).with_name(f"{NAME}.json.corrupt").exists()
    add(store, arguments("a"), 6)
    assert learned(store, arguments("a")) == LearnedIterations(6, 1, 6, 6)


@pytest.mark.parametrize("count", [0, -3, 2**60, 1.5, "many", None])
def test_a_count_that_no_job_can_have_is_not_learned(tmp_path: Path, count: object) -> None:
    """Else a plan would compute with it."""
    add(IterationStore(tmp_path), arguments("a"), 5)
    content = json.loads(path_of(tmp_path).read_text())
    content["counted"][0]["counts"][0]["iterations"] = count
    path_of(tmp_path).write_text(json.dumps(content))
    store = IterationStore(tmp_path)
    assert store.find(NAME) is None and "iterations" in store.notes[0]


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    add(IterationStore(tmp_path), arguments("a"), 5)
    newer = json.dumps({"schema_version": 2, "new": 1})
    path_of(tmp_path).write_text(newer)
    store = IterationStore(tmp_path)
    add(store, arguments("a"), 6)
    assert store.find(NAME) is None and "newer version" in store.notes[0]
    assert path_of(tmp_path).read_text() == newer


def test_runs_that_write_at_once_leave_a_file_that_can_be_read(tmp_path: Path) -> None:
    """One of two may lose its counts, and no reader sees a part of a file."""
    writers, rounds = 4, 15
    together = Barrier(writers)

    def write(number: int) -> None:
        store = IterationStore(tmp_path)
        for turn in range(rounds):
            together.wait()
            count = IterationCount(iterations=1 + number, run=f"run{number}", job=str(turn))
            store.add(NAME, origin(), [(arguments("a"), count)])
        notes.extend(store.notes)

    notes: list[str] = []
    threads = [Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = learned(IterationStore(tmp_path), arguments("a"))
    assert not notes and found is not None
    assert 1 <= found.fewest <= found.most <= writers
    assert [path.name for path in path_of(tmp_path).parent.iterdir()] == [f"{NAME}.json"]
