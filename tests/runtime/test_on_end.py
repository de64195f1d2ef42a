"""`on_end:`: commands at the end of jobs and runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ecoshare.runtime.on_end import run_command
from tests.runtime.running import Finished, job_file, slow_steps, start
from tests.warm import Started, wait_for

TELL = """
import os, sys
with open(sys.argv[1], "a") as told:
    print(*sys.argv[2:], os.environ.get("SECRET", "-"), file=told)
print("said to a terminal")
"""


def keys(folder: Path, *words: str) -> list[str]:
    """Value of `on_end:` that adds a line with these words to the file `told`."""
    (folder / "tell.py").write_text(TELL)
    return [sys.executable, "tell.py", str(folder / "told"), *words]


def told(folder: Path) -> list[str]:
    return sorted((folder / "told").read_text().splitlines())


def quick(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "script": "quick.py", **more}


def write(folder: Path, *jobs: dict[str, Any]) -> None:
    """Job file with `on_end:` in its jobs and for the run."""
    (folder / "quick.py").write_text("import sys\nsys.exit(int((sys.argv[1:] or '0')[0]))\n")
    path = job_file(folder, *jobs)
    file = json.loads(path.read_text())
    file["on_end"] = keys(folder, "run", "{state}", "{run}", "{}", '{"json": 1}')
    file["defaults"] = {"on_end": keys(folder, "{job}", "{state}")}
    path.write_text(json.dumps(file))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """Run that was stopped after some of its jobs had ended."""
    folder = tmp_path_factory.mktemp("on-end")
    write(
        folder,
        quick("good", env={"SECRET": "hunter2"}),
        quick("bad", args=["7"], retries=1),
        quick("silent", on_end=[]),
        quick("fails", on_end=["sh", "-c", "echo broken; exit 3"]),
        slow_steps("long", 10_000, args=["--done", str(folder / "done")]),
        quick("waits", priority=-1),
        quick("later", arrival="1 h"),
    )
    process = start(folder / "jobs.yaml", "--policy", "priority", "--jobs-per-lane", "1")
    out = folder / "ecoshare-runs/latest/jobs/long/stdout.log"
    wait_for(lambda: out.exists() and out.stat().st_size, otherwise=lambda: process.stderr)
    process.send_signal(signal.SIGINT)
    process.wait()
    yield Finished(process.returncode or 0, process.stdout, process.stderr, folder / "ecoshare-runs/latest")


@pytest.mark.slow
def test_each_job_tells_once_and_the_run_last(stopped: Finished) -> None:
    folder = stopped.folder.parents[1]
    assert told(folder) == [
        "bad failed -",
        "good completed hunter2",
        "later cancelled -",
        "long cancelled -",
        f'run interrupted {stopped.folder.resolve()} {{}} {{"json": 1}} -',
        "waits cancelled -",
    ]
    assert (folder / "told").read_text().splitlines()[-1].startswith("run interrupted")
    assert stopped.log("good", "on_end").decode() == "said to a terminal\n"
    assert (stopped.folder / "on_end.log").read_text() == "said to a terminal\n"


def test_a_command_that_fails_is_a_note_and_no_failure_of_the_run(stopped: Finished) -> None:
    assert stopped.code == 130, "as without on_end"
    assert "note: on_end of fails: /" in stopped.stderr and "sh left with exit code 3" in stopped.stderr
    assert stopped.job("fails")["state"] == "completed"
    assert stopped.log("fails", "on_end") == b"broken\n"


@pytest.mark.nightly
def test_what_has_ended_does_not_tell_again(stopped: Finished) -> None:
    folder = stopped.folder.parents[1]
    (folder / "told").unlink()
    before = json.loads((stopped.folder / "jobs.yaml").read_text())
    assert "on_end" in before, "the copy in the run folder has it, too"
    plan = json.loads((stopped.folder / "plan.json").read_text())
    later = next(job for job in plan["jobs"] if job["name"] == "later")
    assert later["on_end"][2:] == [str(folder / "told"), "{job}", "{state}"]
    process = Started("run", "--resume", stopped.folder, "--json", "--no-report")
    wait_for(lambda: "long: starts" in process.stderr, otherwise=lambda: process.stderr)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert [line.split()[0] for line in told(folder)] == ["later", "long", "run", "waits"]


def ran(folder: Path, *words: str, limit_s: float = 20.0) -> tuple[str, str]:
    """The message has the cause of a failed command, and its output."""
    log = folder / "log"
    log.unlink(missing_ok=True)
    problem = asyncio.run(run_command(words, folder, os.environ, log, limit_s))
    return problem, log.read_text()


def test_words_are_given_as_they_are_and_no_shell_reads_them(tmp_path: Path) -> None:
    assert ran(tmp_path, "echo", "$HOME", "a  b", ";", "x>y") == ("", "$HOME a  b ; x>y\n")


@pytest.mark.slow
def test_a_command_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    began_s = time.monotonic()
    problem, said = ran(tmp_path, "sh", "-c", "sleep 100 & echo $!; wait", limit_s=0.5)
    assert problem == "sh was killed after 0.5 s" and time.monotonic() - began_s < 20
    wait_for(lambda: not Path("/proc", said.strip()).exists() or b"\nState:\tZ" in status(said.strip()))


def status(pid: str) -> bytes:
    try:
        return Path("/proc", pid, "status").read_bytes()
    except OSError:
        return b"\nState:\tZ"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("no-such-program",), "no-such-program cannot be started: No such file or directory"),
        (("sh", "-c", "kill -9 $$"), "sh was ended by SIGKILL"),
        (("false",), "false left with exit code 1"),
        (("echo", "a\0b"), "echo cannot be started: embedded null byte"),
    ],
)
def test_a_failure_says_why(tmp_path: Path, words: tuple[str, ...], problem: str) -> None:
    assert ran(tmp_path, *words)[0] == problem
