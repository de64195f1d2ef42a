"""`run --resume` of a folder that another user has made, or could have changed: nothing in it is run or written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtime.running import Finished, job_file, run, slow_steps
from tests.warm import ecoshare


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return run(tmp_path_factory.mktemp("run"), slow_steps("a", 2))


def chown(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(folder / "plan.json", 12345, -1)


def link_log(folder: Path) -> None:
    (folder / "events.jsonl").rename(folder.parent / "other")
    (folder / "events.jsonl").symlink_to(folder.parent / "other")


def link_job(folder: Path) -> None:
    (folder / "jobs/a").rename(folder.parent / "other")
    (folder / "jobs/a").symlink_to(folder.parent / "other")


def open_to_others(folder: Path) -> None:
    folder.chmod(0o777)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (chown, "plan.json belongs to user 12345"),
        (link_log, "events.jsonl is a symbolic link"),
        (link_job, "jobs/a is a symbolic link"),
        (open_to_others, "other users may write"),
    ],
)
def test_it_is_refused(done: Finished, tmp_path: Path, change: Callable[[Path], None], words: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(done.folder, folder)
    before = (folder / "events.jsonl").read_bytes()
    change(folder)
    resumed = ecoshare("run", "--resume", folder)
    assert resumed.returncode == 2 and words in resumed.stderr, resumed.stderr
    assert (folder / "events.jsonl").read_bytes() == before
    assert ecoshare("export", folder).returncode == 0, "it may be read all the same"


@pytest.mark.slow
def test_a_copy_of_ones_own_is_resumed(done: Finished, tmp_path: Path) -> None:
    shutil.copytree(done.folder, tmp_path / "run")
    assert ecoshare("run", "--resume", tmp_path / "run").returncode == 0


@pytest.mark.slow
def test_a_link_of_another_user_is_not_where_runs_are_written(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a link away")
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (runs := tmp_path / "work" / "ecoshare-runs").parent.mkdir()
    runs.symlink_to(elsewhere)
    path = job_file(runs.parent, slow_steps("a", 2))
    line = ("run", path, "--device", "cpu", "--no-report")
    assert ecoshare(*line, cwd=runs.parent).returncode == 0, "one's own is followed"
    before = sorted(elsewhere.iterdir())
    os.chown(runs, 12345, -1, follow_symlinks=False)
    refused = ecoshare(*line, cwd=runs.parent)
    assert refused.returncode == 4 and "is a link of user 12345" in refused.stderr, refused.stderr
    assert sorted(elsewhere.iterdir()) == before
