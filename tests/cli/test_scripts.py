"""`ecoshare run a.py b.py -- --steps 3`: scripts without a job file."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from ecoshare.errors import UsageError
from ecoshare.jobs.from_values import from_scripts, named_jobs
from ecoshare.jobs.load import load
from tests.runtime.running import SCRIPTS
from tests.test_cli import ecoshare
from tests.warm import Started, wait_for

QUIET = ("--device", "cpu", "--no-profiles", "--no-report", "--json")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "more").mkdir()
    for name in ("a.py", "b.py", "more/a.py"):
        shutil.copy(SCRIPTS / "slow_steps.py", tmp_path / name)
    (tmp_path / "jobs.yaml").write_text("version: 1\njobs:\n- {name: a, script: a.py}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_script_is_a_job_and_all_get_the_words(folder: Path) -> None:
    made = named_jobs([Path("a.py"), Path("b.py"), Path("more/a.py")], ["--steps", "3"])
    assert [job.name for job in made.jobs] == ["a", "b", "a-2"] and made.made
    assert {job.args for job in made.jobs} == {("--steps", "3")}
    assert [job.script for job in made.jobs] == [folder / "a.py", folder / "b.py", folder / "more/a.py"]


def test_the_file_that_is_made_holds_the_same_jobs(folder: Path) -> None:
    """If it failed, a resumed run would run something else."""
    made = from_scripts([Path("a.py"), Path("b.py")], ["--name", "x: 'y' #z", "", "null", "1e3"], "")
    Path("copy.yaml").write_text(made.text)
    again = load(Path("copy.yaml"))
    assert (again.jobs, again.digest) == (made.jobs, made.digest)


@pytest.mark.parametrize(
    ("paths", "words", "said"),
    [
        (("jobs.yaml", "a.py"), (), "jobs.yaml is a job file and a.py a script"),
        (("a.py", "3"), (), "3 is neither a script"),
        (("a.py", "more"), (), "more is a folder"),
        (("more",), (), "more is a folder"),
        (("c.py",), (), "c.py: no such script"),
        (("a.py", "c.py"), (), "c.py: no such script"),
        (("jobs.yaml",), ("3",), "takes no arguments"),
        (("jobs.yaml", "jobs.yaml"), (), "give one job file"),
    ],
)
def test_wrong_names_give_a_clear_word(folder: Path, paths: tuple[str, ...], words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        named_jobs(list(map(Path, paths)), words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "a.py", "--steps", "3"), "`ecoshare run a.py -- --steps`"),
        (("run", "a.py", "--polcy", "fair"), "--policy"),
        (("run", "--resume", "x", "--", "3"), "give one or the other"),
        (("run", "--", "a.py"), "give a job file, scripts"),
    ],
)
def test_options_of_a_script_stand_after_the_dashes(folder: Path, words: tuple[str, ...], said: str) -> None:
    done = ecoshare(*words, cwd=folder)
    assert done.returncode == 2 and said in done.stderr, done.stderr


@pytest.mark.nightly
def test_a_run_of_scripts_goes_on_after_it_was_stopped(folder: Path) -> None:
    """If it failed, `--resume` would read a script as if it were a job file."""
    long = ("--steps", "400", "--ms", "20")
    process = Started(
        "run", "a.py", "b.py", *QUIET, "--policy", "fifo", "--jobs-per-lane", "1", "--", *long, cwd=folder
    )
    out = folder / "ecoshare-runs/latest/jobs/a/stdout.log"
    wait_for(lambda: out.exists() and out.stat().st_size, otherwise=lambda: process.stderr)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130, process.stderr
    run = (folder / "ecoshare-runs/latest").readlink()
    assert run.name.endswith("-a-b") and f"--resume ecoshare-runs/{run}" in process.stderr
    for name in ("a.py", "b.py"):  # else it would take the time of all steps
        (folder / name).write_text("import sys\nprint('again', sys.argv[1:])\n")
    done = ecoshare("run", "--resume", "ecoshare-runs/latest", "--json", "--no-report", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert {job["name"]: job["state"] for job in json.loads(done.stdout)["jobs"]} == {
        "a": "completed",
        "b": "completed",
    }
    assert (folder / "ecoshare-runs/latest/jobs/b/stdout.log").read_text() == f"again {list(long)}\n"
