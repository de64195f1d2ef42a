"""`after:` and its kind in a job file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.errors import InvalidJobFile
from ecoshare.jobs.load import load, parse

SCRIPTS = "train.py"
AS_NAMES = "expected up to 100 letters, digits, '.', '_' or '-' that do not begin with '.' or '-'"


def written(folder: Path, *jobs: str) -> Path:
    (folder / SCRIPTS).write_text("")
    path = folder / "jobs.yaml"
    pairs = [job.partition(" ")[::2] for job in jobs]
    lines = [f"  - {{name: {name}, script: {SCRIPTS}{', ' + keys if keys else ''}}}" for name, keys in pairs]
    path.write_text("\n".join(["version: 1", "jobs:", *lines, ""]))
    return path


def mistakes(folder: Path, *jobs: str) -> list[tuple[int, str, str]]:
    with pytest.raises(InvalidJobFile) as error:
        load(written(folder, *jobs))
    return [(each.line, each.where, each.what) for each in error.value.mistakes]


def test_both_names_of_a_key_mean_the_same(tmp_path: Path) -> None:
    loaded = load(written(tmp_path, "a", "b after: [a]", "c after: [b], after_ok: [a, b], after_any: [a]"))
    assert [job.after for job in loaded.jobs] == [(), ("a",), ("b", "a")]
    assert [job.after_any for job in loaded.jobs] == [(), (), ("a",)]
    assert not any(job.after_ok for job in loaded.jobs)


def test_a_job_may_wait_for_a_sweep_and_for_jobs_outside_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "s sweep: {grid: {x: [1, 2]}}", "b after: [s, earlier]")
    loaded = parse(path.read_bytes(), path, "jobs.yaml", tmp_path, others={"earlier"})
    assert loaded.jobs[1].after == ("s", "earlier")


def test_each_mistake_has_its_place(tmp_path: Path) -> None:
    jobs = ("prepare", "b after: [prepar, b]", "c after_any: [nothing]", "s 'service': {p99: 1 s}", "d after: [s]")
    assert mistakes(tmp_path, *jobs, "e after: prepare", "f after_ok: [~, '-']") == [
        (4, "jobs[1].after[0]", "there is no job 'prepar'; did you mean 'prepare'?"),
        (4, "jobs[1].after[1]", "a job cannot wait for itself"),
        (5, "jobs[2].after_any[0]", "there is no job 'nothing'"),
        (7, "jobs[4].after[0]", "'s' serves until all other jobs have ended"),
        (8, "jobs[5].after", "expected a list of names such as [prepare], got 'prepare'"),
        (9, "jobs[6].after_ok", f"{AS_NAMES}, got nothing"),
    ]


def test_a_circle_is_told_once_where_its_first_job_enters_it(tmp_path: Path) -> None:
    jobs = ("x after: [a]", "a after: [b]", "b after_any: [c]", "c after: [a, d]", "d after: [c]", "e")
    assert mistakes(tmp_path, *jobs) == [
        (4, "jobs[1].after[0]", "a circle: a waits for b, which waits for c, which waits for a"),
        (6, "jobs[3].after[1]", "a circle: c waits for d, which waits for c"),
    ]
