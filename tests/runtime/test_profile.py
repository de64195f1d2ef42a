"""Profiles of real scripts from `ecoshare profile` and from windows in runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ecoshare.core.commands import ProfileJob, StartJob
from ecoshare.core.events import Profiled
from ecoshare.devices.registry import processors
from ecoshare.jobs.load import load
from ecoshare.knowledge.profile import Profile
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.lane import trace
from ecoshare.record import event_log
from ecoshare.runtime.measuring.profiling_window import DEFAULT_LIMITS
from ecoshare.runtime.planning.plan import Plan
from tests.planning import planned as made_plan
from tests.runtime.running import SCRIPTS, SLEEPS, Finished, alone, job_file, run, slow_steps, start, words
from tests.warm import Started, ecoshare, wait_for

SLOW = SCRIPTS / "slow_steps.py"
STEPS = 500


def profile(folder: Path, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    where = ("--device", "cpu", "--runs", "ecoshare-runs", "--profiles", "profiles")
    done = ecoshare("profile", *where, *args, cwd=folder, environment={**os.environ, **environment})
    assert "Traceback" not in done.stderr, done.stderr
    return done


def saved(folder: Path) -> dict[str, Profile]:
    files = sorted((folder / "profiles").glob("*.json"))
    return {path.stem: Profile.model_validate_json(path.read_bytes()) for path in files}


def planned(path: Path, store: ProfileStore) -> Plan:
    return made_plan(load(path), (processors(),), store=store)


@pytest.mark.slow
def test_a_script_is_measured_as_it_stands_and_stopped(tmp_path: Path) -> None:
    done = profile(tmp_path, str(SLOW), "--iterations", "40", "--json", "--", "--steps", "100000", "--done", "done")
    assert done.returncode == 0, done.stderr
    made = Profile.model_validate_json(done.stdout)
    assert saved(tmp_path) == {made.job_class: made}
    assert not (tmp_path / "done").exists(), "the script ran on to its end"
    assert made.train is not None and made.eval is None
    assert 40 <= made.train.count < 120
    assert made.train.median_s <= made.train.p95_s
    # The script prints a line each step: what it took by that is what was measured.
    assert made.window.warm_up_iterations >= 10 and made.window.warm_up_s >= 1.0
    memory = made.memory
    parameters = (128 * 4 + 4) * 4
    assert memory.parts["parameters"] == memory.parts["gradients"] == parameters
    assert memory.model_bytes is not None and memory.persistent_bytes is not None
    assert memory.model_bytes == pytest.approx(2 * parameters + 2 * 128 * 128 * 4, abs=4096), "x and features stay"
    assert memory.persistent_bytes > memory.model_bytes + (20 << 20), "torch itself stays too"
    assert memory.ephemeral_bytes is not None and 128 * 128 * 4 <= memory.ephemeral_bytes < 1 << 20
    assert max(level for _, level in memory.timeline) == memory.peak_bytes
    assert made.energy is not None and made.energy.source in ("measured", "modelled")
    assert made.energy.per_iteration_j is not None
    joules = made.energy.power_w * made.train.mean_s
    assert made.energy.per_iteration_j == pytest.approx(joules, rel=0.25)
    assert made.use.busy is not None and made.use.busy < 0.9, "one thread of two or more"
    assert (tmp_path / "profiles" / f"{made.job_class}.svg").read_text().startswith("<?xml")
    assert made.origin.args == ("--steps", "100000", "--done", "done")


@pytest.mark.nightly
def test_a_saved_profile_is_shown_and_compared(tmp_path: Path) -> None:
    args = [str(SLOW), "--iterations", "20", "--"]
    first = profile(tmp_path, *args, "--steps", "100000")
    assert first.returncode == 0, first.stderr
    (name,) = saved(tmp_path)
    assert "P, kept while it waits" in first.stdout
    shown = profile(tmp_path, f"profiles/{name}.json")
    assert shown.returncode == 0 and name in shown.stdout
    second = profile(tmp_path, "--compare", name, *args, "--steps", "200000")
    assert second.returncode == 0, second.stderr
    assert name in second.stdout and "200000" in second.stdout
    assert "no profile yet for slow_steps: other arguments: --steps 200000 (was 100000)" in second.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "code", "what"),
    [
        (("nowhere.py",), 2, "nowhere.py: no such script"),
        (("broken.json",), 2, "broken.json is not a profile: "),
        (("none.json",), 2, "none.json: no such profile"),
        (("quick.py", "--compare", "unknown"), 2, "unknown: no such profile"),
        (("quick.py", "--profiles", "quick.py/profiles"), 4, "cannot write to quick.py/profiles: Not a directory"),
        (("jobs.yaml",), 2, "jobs.yaml is a job file: `profile` measures one script"),
        (("quick.py", "--iterations", "0"), 2, "expected at least 1"),
        (("quick.py", "--device", "tpu"), 2, "expected cpu, cuda"),
        (("raises.py",), 1, "failed before it was measured: ValueError: on purpose"),
        (("quick.py",), 1, "quick.py ended, and no iteration was seen"),
        (("few.py",), 1, "few.py ended after 3 iterations, before it was measured"),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_line(tmp_path: Path, args: tuple[str, ...], code: int, what: str) -> None:
    (tmp_path / "broken.json").write_text('{"schema_version": 1}')
    (tmp_path / "quick.py").write_text("print('hello')\n")
    (tmp_path / "raises.py").write_text("raise ValueError('on purpose')\n")
    (tmp_path / "few.py").write_text("import ecoshare\nimport torch\nfor _ in range(3):\n    ecoshare.iteration()\n")
    done = profile(tmp_path, *args)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert what in done.stderr


@pytest.mark.nightly
def test_a_script_that_ends_before_its_times_have_settled_is_measured_by_what_was_seen(tmp_path: Path) -> None:
    (tmp_path / "slower.py").write_text(
        "import time\nimport ecoshare\nimport torch\n"
        "for step in range(300):\n    time.sleep(0.005 + 0.0002 * step)\n    ecoshare.iteration()\n"
    )
    done = profile(tmp_path, "slower.py")
    assert done.returncode == 0, done.stderr
    (made,) = saved(tmp_path).values()
    assert not made.steady and "the iteration time had not settled when the window ended" in made.notes
    assert made.window.measured_s >= 5.0
    assert made.train is not None and 0.02 < made.train.mean_s < 0.065


@pytest.mark.slow
def test_ctrl_c_ends_a_measurement_at_once_and_keeps_nothing(tmp_path: Path) -> None:
    where = ("--device", "cpu", "--profiles", "profiles")
    process = Started("profile", SLOW, *where, "--", "--steps", "100000", cwd=tmp_path)
    wait_for(lambda: "it is warm" in process.stderr)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130, "the script would go on for half an hour"
    assert "was stopped before it was measured" in process.stderr
    assert not saved(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """Two lanes: two jobs of one class side by side, measured as they run."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "slow_steps.py").write_bytes(SLOW.read_bytes())
    jobs = [{**slow_steps(name, STEPS, 20), "script": "slow_steps.py"} for name in ("first", "second")]
    yield run(folder, *jobs, options=("--lanes", "2", "--profiles", str(folder / "profiles")))


def entries(done: Finished, kind: type[Any]) -> list[Any]:
    return [entry for entry in event_log.read(done.folder / "events.jsonl") if isinstance(entry, kind)]


@pytest.mark.nightly
def test_the_first_job_of_a_class_is_measured_in_its_run_while_the_others_wait(shared: Finished) -> None:
    assert shared.code == 0, shared.stderr
    (asked,) = entries(shared, ProfileJob)
    (done,) = entries(shared, Profiled)
    assert not done.error
    assert {each.lanes for each in entries(shared, StartJob)} == {(0,), (1,)}
    (made,) = saved(shared.folder.parents[1]).values()
    assert made.window.paused_jobs == 1
    assert made.window.measured_s >= (DEFAULT_LIMITS.plain_s if made.steady else DEFAULT_LIMITS.longest_s)
    assert made.window.overhead is not None
    assert (shared.folder / "profiles" / f"{made.job_class}.json").exists(), "a run holds what it was decided by"
    began_s = done.at_s - made.window.total_s
    (other,) = {"first", "second"} - {asked.job}
    marks = {
        name: [mark.at_s for mark in trace.read(trace.trace_path(shared.folder / "jobs" / name, 1)) if mark.kind == 2]
        for name in ("first", "second")
    }
    inside = {name: sum(began_s + 0.2 < at_s < done.at_s - 0.1 for at_s in each) for name, each in marks.items()}
    # On a busy machine the iteration that the other one was in may take so long.
    assert inside[asked.job] > 10 and inside[other] <= 1, "another lane ran in the window"
    assert all(len(each) == STEPS for each in marks.values())


@pytest.mark.nightly
def test_measuring_changes_no_bit(shared: Finished) -> None:
    _, expected = alone(SLOW, ("--steps", str(STEPS), "--ms", "20"), SCRIPTS)
    for name in ("first", "second"):
        assert shared.log(name) == expected


@pytest.mark.nightly
def test_the_next_run_knows_the_class_and_a_changed_script_is_another(shared: Finished, tmp_path: Path) -> None:
    known = shared.folder.parents[1] / "profiles"
    (made,) = saved(shared.folder.parents[1]).values()
    script = shared.folder.parents[1] / "slow_steps.py"
    job = {**slow_steps("again", STEPS, 20), "script": str(script)}
    ProfileStore(known).save(made.model_copy(update={"doubt": ""}))  # a busy machine may have left one
    again = run(tmp_path, job, options=("--profiles", str(known), "--memory", "4 GiB"))
    assert again.code == 0 and not entries(again, ProfileJob)
    assert made.memory.persistent_bytes is not None and made.memory.ephemeral_bytes is not None
    need = made.memory.persistent_bytes + made.memory.ephemeral_bytes
    (start,) = entries(again, StartJob)
    assert start.cap_bytes == need + (256 << 20), "what was measured and an allowance"
    script.write_bytes(SLOW.read_bytes() + b"\n# changed\n")
    done = ecoshare(*words(job_file(tmp_path, job), "--profiles", str(known)), "--dry-run")
    assert "slow_steps.py has changed since the profile of 20" in done.stderr


@pytest.mark.nightly
def test_a_profile_that_jobs_are_faster_than_is_not_relied_on_and_measured_again(tmp_path: Path) -> None:
    """Before, a profile from a machine that was busy with other programs led to a claim of 45 % savings."""
    job = slow_steps("a", 200, 20)  # four seconds: such a job got no window in any later run
    done = profile(tmp_path, str(SLOW), "--iterations", "30", "--json", "--", *job["args"])
    assert done.returncode == 0, done.stderr
    made = Profile.model_validate_json(done.stdout)
    assert made.train is not None
    longer = made.train.model_copy(update={"mean_s": 10 * made.train.mean_s, "standard_error_s": 0.001})
    store = ProfileStore(tmp_path / "profiles")
    store.save(made.model_copy(update={"train": longer, "doubt": ""}))

    shared = run(tmp_path, job, {**job, "name": "b"}, options=("--profiles", str(store.folder), "--lanes", "2"))
    for name in ("a", "b"):
        assert shared.job(name)["profile_doubt"].endswith("times as fast as its profile says it runs alone")
        assert shared.job(name)["interference"] in (None, pytest.approx(1.0, abs=0.5)), "not a tenth of the time"
    alone_s = shared.summary["baseline"]["exclusive_makespan_s"]
    taken_s = sum(shared.job(name)["jct_s"] for name in ("a", "b"))
    assert alone_s is None or alone_s < taken_s, "no job is slower alone; the profile says that it takes 40 s or more"
    assert "note: a ran " in shared.stderr and "measured again in the next run" in shared.stderr
    assert not saved(tmp_path)[made.job_class].is_whole
    assert not planned(job_file(tmp_path, job), store).jobs[0].spec.profiled

    again = run(tmp_path, job, options=("--profiles", str(store.folder), "--lanes", "2"))
    (window,) = again.summary["windows"]
    assert window["job"] == "a" and window["error"] is None
    assert planned(job_file(tmp_path, job), store).jobs[0].spec.profiled


@pytest.mark.nightly
def test_a_profile_that_was_made_on_a_busy_machine_says_so(tmp_path: Path) -> None:
    """The script sleeps most of the time, so that other tests beside this one change its speed little."""
    (tmp_path / "sleeps.py").write_text(SLEEPS.replace("0.02", "0.05"))
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    args = ("sleeps.py", "--iterations", "10", "--", "100000")
    try:
        done = profile(tmp_path, *args, ECOSHARE_ASSUME_QUIET="0")
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    (made,) = saved(tmp_path).values()
    assert made.doubt.startswith("other programs kept ") and not made.is_whole
    assert f"note: {made.doubt} while sleeps was measured: it is measured again" in done.stderr
    assert "meanwhile: the class is measured again in the next run" in " ".join(made.notes)
    quiet = profile(tmp_path, *args)
    assert quiet.returncode == 0 and all(each.is_whole for each in saved(tmp_path).values())


VICTIM = """
import os
import time
from pathlib import Path

import torch

Path("pid").write_text(str(os.getpid()))
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    optimizer.zero_grad()
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.01)
"""


@pytest.mark.nightly
def test_a_job_that_is_killed_in_its_window_delays_no_other(tmp_path: Path) -> None:
    (tmp_path / "victim.py").write_text(VICTIM)
    path = job_file(tmp_path, {"name": "victim", "script": "victim.py"}, slow_steps("other", 60, arrival="2 s"))
    process = start(path, "--lanes", "2", "--profiles", str(tmp_path / "profiles"))
    wait_for(lambda: "victim: the first of its class" in process.stderr)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    wait_for(lambda: "no profile" in process.stderr)
    stdout, _ = process.communicate(timeout=60)
    summary = json.loads(stdout)
    assert process.returncode == 1
    assert {job["name"]: job["state"] for job in summary["jobs"]} == {"victim": "failed", "other": "completed"}
