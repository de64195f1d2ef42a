"""`ecoshare runs`: the folders of one real run, under several names and in several states."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshare.queue.queue_folder import QueueFolder
from ecoshare.record.past_runs import past_runs
from ecoshare.record.run_data import is_live
from ecoshare.record.run_folder import RunFolder
from tests.runtime.running import SCRIPTS, job_file, run, slow_steps, start
from tests.test_cli import ecoshare
from tests.warm import wait_for

FIRST, SECOND, THIRD = "20260101-100000-jobs", "20260102-100000-jobs", "20260102-100000-jobs-2"
"""Names of three runs; two of them are of one second."""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run of two jobs."""
    script = str(SCRIPTS / "no_torch.py")
    folder = tmp_path_factory.mktemp("real")
    jobs = [{"name": name, "script": script} for name in ("a", "b")]
    return run(folder, *jobs).folder.resolve()


@pytest.fixture
def folder(real: Path, tmp_path: Path) -> Path:
    """Folder in which the real run has three copies in `ecoshare-runs`, and `latest` leads to the newest."""
    for name in (FIRST, SECOND, THIRD):
        shutil.copytree(real, tmp_path / "ecoshare-runs" / name)
    (tmp_path / "ecoshare-runs" / "latest").symlink_to(THIRD)
    return tmp_path


def runs(folder: Path, *words: str) -> tuple[int, str, str]:
    done = ecoshare("runs", *words, cwd=folder)
    return done.returncode, done.stdout, done.stderr


def left(folder: Path) -> set[str]:
    return {each.name for each in (folder / "ecoshare-runs").iterdir()}


@pytest.mark.slow
def test_the_newest_run_is_listed_first_with_joules_and_their_source(folder: Path) -> None:
    code, stdout, stderr = runs(folder)
    lines = stdout.splitlines()
    assert (code, stderr, lines[-1]) == (0, "", "folder: ecoshare-runs")
    assert [line.split()[0] for line in lines[1:4]] == [THIRD, SECOND, FIRST]
    assert re.search(r"2026-01-01 10:00 +2 +[\d.]+ m?J (measured|modelled) +completed$", lines[3]), lines[3]


def test_json_has_the_figures_of_the_summary(folder: Path) -> None:
    summary = json.loads((folder / "ecoshare-runs" / FIRST / "summary.json").read_text())
    listed = json.loads(runs(folder, "--json")[1])
    assert [each["name"] for each in listed] == [THIRD, SECOND, FIRST]
    assert listed[2] == {
        "run": f"ecoshare-runs/{FIRST}",
        "name": FIRST,
        "opened_utc": "2026-01-01T10:00:00Z",
        "state": "completed",
        "jobs": 2,
        "energy": {name: summary["energy"][name] for name in ("value_j", "source")},
        "fault": None,
    }


def test_a_renamed_run_has_the_time_of_its_environment(folder: Path) -> None:
    (folder / "ecoshare-runs" / FIRST).rename(folder / "ecoshare-runs" / "best")
    found = past_runs(folder / "ecoshare-runs")
    assert found[0].name == "best" and abs((found[0].opened_unix_s or 0.0) - time.time()) < 3600


def test_a_run_without_a_summary_was_interrupted(folder: Path) -> None:
    (folder / "ecoshare-runs" / THIRD / "summary.json").unlink()
    listed = json.loads(runs(folder, "--json")[1])
    assert (listed[0]["state"], listed[0]["jobs"], listed[0]["energy"]) == ("interrupted", 2, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("summary.json", "{"),
        ("summary.json", "[]"),
        ("summary.json", '{"state": "completed", "jobs": [], "energy": {"value_j": NaN, "source": "measured"}}'),
        ("summary.json", '{"state": ["completed"], "jobs": [], "energy": null}'),
        ("summary.json", "[" * 100_000),
        ("summary.json", "\xff"),
        ("plan.json", None),
        ("plan.json", "{}"),
    ],
)
def test_a_damaged_folder_has_one_line_and_can_be_removed(folder: Path, file: str, content: str | None) -> None:
    run = folder / "ecoshare-runs" / SECOND
    if file == "plan.json":
        (run / "summary.json").unlink()
    (run / file).unlink() if content is None else (run / file).write_text(content, encoding="latin-1")
    code, stdout, stderr = runs(folder)
    lines = [line for line in stdout.splitlines() if line.startswith(f"{SECOND} ")]
    assert code == 0 and len(lines) == 1 and lines[0].endswith("damaged")
    assert "note:" in stderr and file in " ".join(stderr.split())
    assert runs(folder, "rm", SECOND)[:2] == (0, f"removed ecoshare-runs/{SECOND}\n")
    assert left(folder) == {FIRST, THIRD, "latest"}


@pytest.mark.slow
def test_what_is_no_run_folder_is_neither_listed_nor_removed(folder: Path) -> None:
    other = folder / "ecoshare-runs" / "notes"
    other.mkdir()
    (other / "events.jsonl").touch()
    (folder / "ecoshare-runs" / "link").symlink_to(FIRST)
    assert len(json.loads(runs(folder, "--json")[1])) == 3
    before = left(folder)
    for name, said in (
        ("notes", "not a run folder"),
        ("missing", "not a run folder"),
        (".", "not a run folder"),
        ("./", "not a run folder"),
        (f"ecoshare-runs/{FIRST}/..", "not a run folder"),
        ("link", "is a link"),
        ("latest", THIRD),
        ("ecoshare-runs/latest/", "is a link"),
    ):
        code, stdout, stderr = runs(folder, "rm", FIRST, name)
        assert (code, stdout) == (2, "") and said in " ".join(stderr.split()), name
    assert left(folder) == before
    assert (folder / "ecoshare-runs" / FIRST / "plan.json").exists()


def test_a_removal_follows_no_link_inside_the_folder(folder: Path) -> None:
    outside = folder / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (folder / "ecoshare-runs" / FIRST / "jobs" / "link").symlink_to(outside)
    (folder / "ecoshare-runs" / FIRST / "link").symlink_to(outside)
    assert runs(folder, "rm", f"ecoshare-runs/{FIRST}")[0] == 0
    assert (outside / "kept").exists() and left(folder) == {SECOND, THIRD, "latest"}


def test_latest_leads_to_the_newest_run_that_is_left(folder: Path) -> None:
    latest = folder / "ecoshare-runs" / "latest"
    runs(folder, "rm", SECOND)
    assert latest.readlink() == Path(THIRD)
    runs(folder, "rm", THIRD)
    assert latest.readlink() == Path(FIRST)
    runs(folder, "rm", FIRST)
    assert left(folder) == set()
    assert "no runs in ecoshare-runs" in runs(folder)[2]


def test_old_runs_are_removed_by_their_age(folder: Path) -> None:
    age_d = int((time.time() - 1_767_261_600) / 86_400)  # since 2026-01-01 10:00 UTC
    assert runs(folder, "rm", "--older", f"{age_d + 2}d")[:2] == (0, "")
    assert runs(folder, "rm", "--older", f"{age_d}d", "--dry-run")[1] == f"would remove ecoshare-runs/{FIRST}\n"
    assert len(left(folder)) == 4
    assert runs(folder, "rm", "--older", f"{age_d}d")[1] == f"removed ecoshare-runs/{FIRST}\n"
    assert left(folder) == {SECOND, THIRD, "latest"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rm",), "either run folders or --older"),
        (("rm", FIRST, "--older", "1d"), "either run folders or --older"),
        (("rm", "--older", "1"), "with its unit"),
        (("rm", "--older", "long"), "--older"),
        (("--runs", "elsewhere", "rm", FIRST), "options stand after `rm`"),
        (("rm", FIRST, "--runs", "ecoshare-runs", "--queue", "night"), "contradict"),
        (("--queue", "../night"), "expected up to"),
        (("--runs", f"ecoshare-runs/{FIRST}/plan.json"), "cannot read the folder"),
    ],
)
def test_wrong_words_get_one_line_and_remove_nothing(folder: Path, words: tuple[str, ...], said: str) -> None:
    code, stdout, stderr = runs(folder, *words)
    assert (code, stdout) == (2, "") and said in " ".join(stderr.split()), stderr
    assert len(left(folder)) == 4


@pytest.fixture
def queue(real: Path) -> Iterator[QueueFolder]:
    """Queue with the folder of a run."""
    queue = QueueFolder.of("night")
    shutil.copytree(real, queue.runs / FIRST)
    yield queue
    shutil.rmtree(queue.path)


def test_runs_of_a_queue_are_listed_and_removed(folder: Path, queue: QueueFolder) -> None:
    listed = json.loads(runs(folder, "--queue", "night", "--json")[1])
    assert [each["run"] for each in listed] == [str(queue.runs / FIRST)]
    assert runs(folder, "rm", "--queue", "night", FIRST)[:2] == (0, f"removed {queue.runs / FIRST}\n")
    assert not list(queue.runs.iterdir()) and len(left(folder)) == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("logs", FIRST, "a"), "of a, 1"),
        (("logs", f"ecoshare-runs/{FIRST}/", "b"), "of b, 1"),
        (("logs", "latest", "a"), "of a, 3"),
        (("logs", "a"), "of a, 3"),
        (("logs", "b", "--runs", "others"), "of b, 9"),
        (("logs", FIRST, "b", "--runs", "others", "-n", "1"), "of b, 9"),
        (("explain", FIRST, "a"), "a (class no_torch)"),
        (("explain", SECOND), f"ecoshare-runs/{SECOND}: completed"),
        (("explain",), f"ecoshare-runs/{THIRD}: completed"),
        (("explain", "b"), "b (class no_torch)"),
        (("export", FIRST), f'"run": "ecoshare-runs/{FIRST}"'),
        (("export",), f'"run": "ecoshare-runs/{THIRD}"'),
    ],
)
def test_commands_take_runs_as_they_are_listed_and_the_newest_by_default(
    folder: Path, words: tuple[str, ...], found: str
) -> None:
    shutil.copytree(folder / "ecoshare-runs" / FIRST, folder / "others" / FIRST)
    for number, path in ((1, f"ecoshare-runs/{FIRST}"), (3, f"ecoshare-runs/{THIRD}"), (9, f"others/{FIRST}")):
        for job in ("a", "b"):
            (folder / path / "jobs" / job / "stdout.log").write_text(f"begun\nof {job}, {number}\n")
    done = ecoshare(*words, cwd=folder)
    assert done.returncode == 0 and found in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("logs",), f"error: the run {THIRD} has not one job: name one of them\nhint: its jobs are a, b"),
        (("logs", "latest", "aa"), "error: ecoshare-runs/latest has no job 'aa'\nhint: did you mean 'a'?"),
        (("logs", "q"), "error: q is no run in ecoshare-runs, no job of the newest one, and none of the queue"),
        (("explain", FIRST, "a", "--queue", "night"), "error: there is no queue 'night'"),
        (("explain", FIRST, "q"), f"error: ecoshare-runs/{FIRST} has no job 'q'"),
    ],
)
def test_a_wrong_name_of_a_run_or_job_is_told_with_what_there_is(
    folder: Path, words: tuple[str, ...], said: str
) -> None:
    done = ecoshare(*words, cwd=folder)
    assert done.returncode in (2, 4) and done.stderr.startswith(said), done.stderr


@pytest.mark.slow
def test_a_run_in_progress_is_listed_as_running_and_never_removed(tmp_path: Path) -> None:
    short = {"name": "short", "script": str(SCRIPTS / "no_torch.py")}
    process = start(job_file(tmp_path, slow_steps("a", 5_000), short))
    latest = tmp_path / "ecoshare-runs" / "latest"
    try:
        wait_for(lambda: (latest / "plan.json").exists() and is_live(RunFolder(latest)))
        (listed,) = json.loads(runs(tmp_path, "--json")[1])
        assert (listed["state"], listed["jobs"], listed["energy"]) == ("running", 2, None)
        followed = ecoshare("logs", "-f", "short", cwd=tmp_path)
        assert followed.stdout.splitlines()[-1].startswith("14 "), "it ends with its job"
        assert process.poll() is None, "and not with the run"
        code, _, stderr = runs(tmp_path, "rm", listed["name"])
        assert code == 2 and "still going on" in stderr
        code, stdout, stderr = runs(tmp_path, "rm", "--older", "0s")
        assert (code, stdout) == (0, "") and "still going on" in " ".join(stderr.split())
        assert (latest / "plan.json").exists()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    (listed,) = json.loads(runs(tmp_path, "--json")[1])
    assert listed["state"] == "interrupted"
    assert runs(tmp_path, "rm", "--older", "0s")[1] == f"removed ecoshare-runs/{listed['name']}\n"
    assert left(tmp_path) == set()
