"""The drivers of scripts/fuzz find no fault in a few rounds each, above all none that they found before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.fuzz import (
    environments,
    faulty_jobs,
    job_files,
    messages,
    requests,
    run_folders,
    signals,
    stores,
    traces,
    users,
)
from scripts.fuzz.commands import Called, judge
from scripts.fuzz.rounds import Lost, Play, Prepare, Round, fuzz, remove
from tests.rounds import night, rounds

NIGHTLY = pytest.mark.nightly


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("driver", "prepare", "count", "part"),
    [
        ("job_files", job_files.prepare, rounds(60, nightly=300), 0),
        ("traces", traces.prepare, rounds(40, nightly=300), 0),
        ("stores", stores.prepare, rounds(30, nightly=150), 0),
        ("messages", messages.prepare, rounds(60, nightly=300), 0),
        pytest.param("requests", requests.prepare, rounds(2, nightly=8), 0, marks=NIGHTLY),
        pytest.param("run_folders", run_folders.prepare, rounds(40, nightly=60), 0, marks=NIGHTLY),
        *(pytest.param("users", users.prepare, rounds(4, nightly=12), part, marks=NIGHTLY) for part in range(3)),
        pytest.param("environments", environments.prepare, rounds(8, nightly=24), 0, marks=NIGHTLY),
        pytest.param("signals", signals.prepare, rounds(5, nightly=12), 0, marks=NIGHTLY),
        *(
            pytest.param("faulty_jobs", faulty_jobs.prepare, rounds(2, nightly=5), part, marks=NIGHTLY)
            for part in range(4)
        ),
    ],
)
def test_nothing_is_lost(driver: str, prepare: Prepare, count: int, part: int, tmp_path: Path) -> None:
    """Each night has other rounds, in up to four parts; a loss is told with the number that repeats it."""
    first = (4 * night() + part) * count
    tally = fuzz(driver, prepare, tmp_path, range(first, first + count))
    assert tally.rounds == count and not tally.losses, tally.describe()


def test_the_folder_around_a_round_keeps_its_permissions(tmp_path: Path) -> None:
    """A folder that could not be removed whole left /tmp closed to all other users."""
    tmp_path.chmod(0o755)
    remove(tmp_path / "gone")
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    (closed := tmp_path / "round" / "closed").mkdir(parents=True)
    (closed / "file").touch()
    closed.chmod(0o500)
    remove(tmp_path / "round")
    assert not closed.parent.exists() and tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_loss_is_told_with_the_round_that_repeats_it(tmp_path: Path) -> None:
    drawn: dict[str, list[float]] = {}

    def prepare(folder: Path) -> Play:
        own = drawn[folder.parent.name] = []

        def play(one: Round) -> None:
            one.kind, number = "half", one.dice.random()
            own.append(number)
            one.story.append(f"drew {number}")
            if one.number == 1:
                raise Lost("it broke", "in pieces")
            if one.number == 2:
                os.stat(one.folder / "gone")  # noqa: PTH116 - raises in this file

        return play

    tallies = []
    for name, numbers in (("all", range(4)), ("again", range(1, 2))):
        (tmp_path / name).mkdir()
        tallies.append(fuzz("example", prepare, tmp_path / name, numbers, seed=5))
    assert drawn["again"] == drawn["all"][1:2]
    words = tallies[0].describe()
    assert "python -m scripts.fuzz.example --seed 5 --only 1" in words and f"did: drew {drawn['all'][1]}" in words
    assert [loss.finding.split(" in ")[0] for loss in tallies[0].losses] == ["it broke", "FileNotFoundError"]
    assert tallies[0].as_dict()["kinds"] == {"half": {"tried": 4, "survived": 2, "lost": 2}}
    assert not list((tmp_path / "all").glob("round-*"))


@pytest.mark.parametrize(
    ("code", "stderr", "finding"),
    [
        (4, "error: no room\nhint: make some\n", ""),
        (3, "jobs.yaml:1:2: no job\n", ""),
        (3, "error: no job\n", "exit code 3 without file, line and column"),
        (1, "", "exit code 1 without an error in words"),
        (77, "error: x\n", "exit code 77"),
        (1, "error: \x1b[2J\n", "control characters in the error"),
        (1, "Traceback (most recent call last):\nValueError: x\n", "traceback: ValueError in elsewhere"),
    ],
)
def test_a_command_is_judged_by_how_it_ends(code: int, stderr: str, finding: str) -> None:
    done = Called("run", code, "", stderr)
    if not finding:
        judge(done)
        return
    with pytest.raises(Lost) as lost:
        judge(done)
    assert lost.value.finding == finding
