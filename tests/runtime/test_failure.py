"""A failed job ends alone: its neighbours finish with the same losses as alone, and the cause is named."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.attempt import Outcome
from ecoshare.core.commands import StartJob
from ecoshare.core.events import JobExited, RunOpened
from ecoshare.record import event_log
from tests.runtime.running import (
    SCRIPTS,
    SLEEPS,
    Finished,
    alone,
    check,
    job_file,
    resume,
    run,
    slow_steps,
    start,
    words,
)
from tests.warm import Started, ecoshare, wait_for

NEIGHBOUR = {"name": "neighbour", "script": str(SCRIPTS / "validation.py")}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "raises": ({"script": "raises.py"}, "ValueError: labels ran out at step 5"),
    "fresh": ({"script": "raises.py", "isolation": "fresh"}, "ValueError: labels ran out at step 5"),
    "segfault": ({"script": "segfault.py"}, "killed by SIGSEGV"),
    "killed": ({"script": "killed_self.py"}, "killed by SIGKILL (not sent by ecoshare"),
    "exits": ({"script": "exit_three.py"}, "exit code 3: diverged, giving up"),
    "hangs": ({"script": "hangs.py", "timeout": "1 s"}, "inside an iteration (timeout)"),
    "silent": ({"script": "never_steps.py", "startup_timeout": "1 ms"}, "(startup_timeout)"),
    "interpreter": ({"script": "validation.py", "python": "/bin/false"}, "exit code 1"),
}
"""Jobs that fail, each with words of its error."""


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Run of all jobs that fail, in one lane with one that does not."""
    bad = [{"name": name, **job, "script": str(SCRIPTS / job["script"])} for name, (job, _) in BAD.items()]
    return run(tmp_path_factory.mktemp("failing"), *bad[:2], NEIGHBOUR, *bad[2:], options=("--memory", "3 GiB"))


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD)
def test_a_failure_stays_with_its_job(name: str, failing: Finished) -> None:
    assert failing.job(name)["state"] == "failed"
    assert BAD[name][1] in failing.job(name)["error"]


@pytest.mark.slow
def test_the_neighbour_of_jobs_that_fail_computes_what_it_does_alone(failing: Finished) -> None:
    assert failing.code == 1
    assert failing.job("neighbour")["state"] == "completed"
    assert failing.log("neighbour") == alone(SCRIPTS / "validation.py", (), SCRIPTS)[1]


@pytest.mark.nightly
def test_a_job_that_exceeds_its_memory_fails_alone(tmp_path: Path) -> None:
    bad = {"name": "eats", "script": str(SCRIPTS / "eats_memory.py")}
    done = run(tmp_path, bad, NEIGHBOUR, options=("--memory", "3 GiB"))
    assert (done.code, done.job("eats")["state"]) == (1, "failed")
    assert "GiB of memory, and was promised" in done.job("eats")["error"]
    assert done.log("neighbour") == alone(SCRIPTS / "validation.py", (), SCRIPTS)[1]


@pytest.mark.slow
@pytest.mark.parametrize("bad", [1, 2])
def test_a_job_that_kills_its_parent_fails_and_its_neighbours_do_not(tmp_path: Path, bad: int) -> None:
    """If it failed, one job could end all other jobs of a run: they are lost with the process that forked them."""
    (tmp_path / "kills.py").write_text("import os, time\ntime.sleep(0.2)\nos.kill(os.getppid(), 9)\ntime.sleep(600)\n")
    (tmp_path / "works.py").write_text("import time\ntime.sleep(0.5)\nprint('done')\n")
    jobs = [{"name": f"bad{number}", "script": "kills.py"} for number in range(bad)]
    jobs += [{"name": f"good{number}", "script": "works.py"} for number in range(3)]
    done = run(tmp_path, *jobs, options=("--lanes", "2", "--jobs-per-lane", "3"))
    assert done.code == 1
    assert {job["name"]: job["state"] for job in done.summary["jobs"]} == {
        job["name"]: "failed" if job["name"].startswith("bad") else "completed" for job in jobs
    }
    assert all(done.log(job["name"]) == b"done\n" for job in jobs if job["name"].startswith("good"))
    assert "supervisor" in done.job("bad0")["error"]


@pytest.mark.nightly
def test_a_new_job_may_have_all_unused_memory(tmp_path: Path) -> None:
    """A new job may have 1 GiB of 2: memory on processors is watched, so none is reserved for jobs that never come."""
    (tmp_path / "needs.py").write_text("import torch\nkept = torch.ones(1 << 28)\nprint('done')\n")
    done = run(tmp_path, {"name": "a", "script": "needs.py"}, options=("--memory", "2 GiB"))
    assert done.code == 0, done.stderr
    assert (done.job("a")["attempts"], done.log("a")) == (1, b"done\n")


@pytest.mark.nightly
def test_two_new_jobs_that_outgrow_the_memory_run_one_after_the_other(tmp_path: Path) -> None:
    """Both jobs complete; the one that has outgrown its promise by more begins again after the other has left.

    Before, the controller sometimes ended the other one while the warm server ended this one.
    """
    (tmp_path / "needs.py").write_text("import torch\nkept = torch.ones(280 << 20)\n" + SLEEPS)  # 1.1 GiB
    jobs = [{"name": name, "script": "needs.py", "args": ["200"]} for name in ("a", "b")]
    done = run(tmp_path, *jobs, options=("--memory", "2 GiB"))
    assert done.code == 0, done.stderr
    assert sorted(done.job(name)["attempts"] for name in ("a", "b")) == [1, 2]
    exits = [entry for entry in event_log.read(done.folder / "events.jsonl") if isinstance(entry, JobExited)]
    assert [each.outcome for each in exits if each.attempt == 1].count(Outcome.OUTGREW) == 1
    assert done.log("a") == done.log("b")


@pytest.mark.slow
def test_a_job_that_needs_more_than_there_is_fails_without_a_second_try(tmp_path: Path) -> None:
    """It had all memory the first time, so that another try would only repeat what it does."""
    (tmp_path / "needs.py").write_text("import time, torch\nkept = torch.ones(3 << 28)\ntime.sleep(60)\n")
    done = run(tmp_path, {"name": "a", "script": "needs.py"}, options=("--memory", "1 GiB"))
    assert done.code == 1 and done.job("a")["attempts"] == 1
    assert "and there are 1.00 GiB for them" in done.job("a")["error"]


GROWS = """
import sys, time
from pathlib import Path
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
kept = []
for step in range(700):
    loss = model(torch.ones(8, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.01)
    if step >= 600 and step % 10 == 0:
        kept.append(torch.ones(16 << 20))  # 64 MiB
time.sleep(2.5)  # its memory is looked at about once a second
with Path("done.txt").open("a") as file:
    file.write("done\\n")
"""
"""Script that keeps 640 MiB more after it was measured."""


@pytest.mark.nightly
def test_a_job_that_outgrows_its_profile_goes_on_and_is_granted_more_in_the_next_run(tmp_path: Path) -> None:
    """A profile that was made early says a third of what the job takes.

    If it failed, a healthy job would be ended while memory is free.
    """
    (tmp_path / "grows.py").write_text(GROWS)
    caps = []
    for _ in range(2):
        options = ("--profiles", str(tmp_path / "profiles"))
        done = run(tmp_path, {"name": "a", "script": "grows.py"}, options=options)
        assert done.code == 0 and done.job("a")["attempts"] == 1
        (start,) = (entry for entry in event_log.read(done.folder / "events.jsonl") if isinstance(entry, StartJob))
        caps.append(start.cap_bytes / 2**20)
    assert (tmp_path / "done.txt").read_text() == 2 * "done\n"
    assert caps[1] > 800, caps


@pytest.mark.slow
def test_a_run_without_anything_left_says_so_and_gives_its_result_again(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        "import sys\nsys.stderr.write('\\x1b[31mred\\x1b[0m\\n\\x1b[0m\\n')\nsys.exit(4)\n"
    )
    done = run(tmp_path, {"name": "loud", "script": "loud.py"})
    assert done.job("loud")["error"] == "exit code 4: red", "colours are for terminals"
    assert "jobs/loud/stderr.log" in done.stderr
    again = resume(done.folder)
    assert again.code == 1
    assert "ended already" in again.stderr
    assert again.summary["jobs"] == done.summary["jobs"]


@pytest.mark.slow
def test_retries_and_the_policys_options_are_kept_over_a_resume(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("import sys, time\ntime.sleep(0.2)\nsys.exit(1)\n")
    path = job_file(tmp_path, {"name": "a", "script": "fails.py", "retries": 3})
    options = ("--policy", "tiresias", "--option", "limit_1=0.25", "--option", "starvation=3")
    process = start(path, *options)
    wait_for((tmp_path / "ecoshare-runs/latest/jobs/a/exit-1.json").exists)
    process.kill()
    process.wait()
    assert resume(tmp_path / "ecoshare-runs/latest").code == 1
    ends = [json.loads(each.read_text()) for each in (tmp_path / "ecoshare-runs/latest/jobs/a").glob("exit-*.json")]
    assert sum(end["outcome"] == "failed" for end in ends) == 4
    opened = [
        each for each in event_log.read(tmp_path / "ecoshare-runs/latest/events.jsonl") if isinstance(each, RunOpened)
    ]
    assert [each.config.options for each in opened] == 2 * [(("limit_1", 0.25), ("starvation", 3.0))]


def test_an_unwritable_run_folder_is_said_before_anything_starts(tmp_path: Path) -> None:
    path = job_file(tmp_path, NEIGHBOUR)
    (tmp_path / "ecoshare-runs").write_text("a file where the folder should be")
    done = ecoshare(*words(path))
    assert done.returncode == 4
    assert "cannot write" in done.stderr and "--runs" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.nightly
def test_a_run_on_a_full_disk_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """File system of 512 KiB that something else fills. The jobs print nothing, which would fail."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", disk], check=False).returncode
    ):
        pytest.skip("cannot mount a small file system here")
    try:
        script = tmp_path / "sleeps.py"
        script.write_text(SLEEPS.replace("print(loss.item())", ""))
        names = [f"job-{number}" for number in range(12)]
        path = job_file(tmp_path, *({"name": name, "script": str(script), "args": ["20"]} for name in names))
        options = ("--runs", str(disk / "ecoshare-runs"), "--lanes", "1", "--jobs-per-lane", "1")
        with (tmp_path / "errors").open("wb") as errors:
            process = Started(*words(path), *options, stderr=errors.fileno())
        latest = disk / "ecoshare-runs" / "latest"
        wait_for(lambda: list(latest.glob("jobs/job-0/*.log")))
        filler = disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(256))
        wait_for(lambda: "no space is left for" in (tmp_path / "errors").read_text())
        filler.unlink()
        stdout, _ = process.communicate(timeout=60)
        assert {job["name"]: job["state"] for job in json.loads(stdout)["jobs"]} == dict.fromkeys(names, "completed")
        check(latest)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def interrupted(tmp_path: Path, *jobs: dict[str, Any], presses: int, after: str) -> tuple[int, str, dict[str, Any]]:
    """Run, press Ctrl-C when a job's log has grown, and return exit code, stderr and summary."""
    path = job_file(tmp_path, *jobs)
    process = start(path, new_session=True)
    log = tmp_path / "ecoshare-runs/latest/jobs" / after / "stdout.log"
    wait_for(lambda: log.exists() and log.stat().st_size)
    for _ in range(presses):
        with contextlib.suppress(ProcessLookupError):  # once was enough
            os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.3)  # two at once would be one
    stdout, stderr = process.communicate(timeout=60)
    assert "Traceback" not in stderr, stderr
    return process.wait(), stderr, json.loads(stdout)


@pytest.mark.slow
def test_ctrl_c_lets_jobs_end_at_a_boundary(tmp_path: Path) -> None:
    """A job that saves its state on SIGTERM continues from there when the run is resumed."""
    saves = {
        "name": "saves",
        "script": str(SCRIPTS / "checkpoint_resume.py"),
        "args": ["--steps", "400", "--step-ms", "20"],
        "cwd": str(tmp_path),
        "resume_args": ["--resume"],
    }
    code, stderr, summary = interrupted(tmp_path, saves, slow_steps("plain", 400), presses=1, after="saves")
    assert code == 130
    assert "--resume" in stderr
    assert {job["state"] for job in summary["jobs"]} == {"cancelled"}
    assert (tmp_path / "checkpoint_resume.pt").exists()


@pytest.mark.slow
def test_ctrl_c_twice_ends_a_job_that_hangs(tmp_path: Path) -> None:
    began_s = time.monotonic()
    hangs = {"name": "hangs", "script": str(SCRIPTS / "hangs.py")}
    code, _, summary = interrupted(tmp_path, hangs, presses=2, after="hangs")
    assert code == 130
    assert summary["jobs"][0]["state"] == "cancelled"
    assert time.monotonic() - began_s < 30


@pytest.mark.slow
def test_any_number_may_be_an_exit_code_and_means_what_python_makes_of_it(tmp_path: Path) -> None:
    """Before, `sys.exit(10**30)` counted as completed."""
    script = tmp_path / "ends.py"
    script.write_text("import sys\nsys.exit(eval(sys.argv[1]))\n")
    numbers = ["10**30", "-(10**30)", "2**63", "2**31", "-1", "256", "257"]
    jobs = [{"name": f"j{place}", "script": str(script), "args": [word]} for place, word in enumerate(numbers)]
    done = run(tmp_path, *jobs)
    for place, word in enumerate(numbers):
        code, _ = alone(script, (word,), tmp_path)
        assert (done.job(f"j{place}")["exit_code"], word) == (code, word)
