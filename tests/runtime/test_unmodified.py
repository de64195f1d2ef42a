"""Unmodified scripts do the same shared as alone.

All scripts of tests/scripts run in one lane, four at a time. Each is compared with `python script`; the quick suite
compares some of them, with forks of an interpreter that has loaded torch.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Container
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.running import Finished, alone, copy_of_scripts, run
from tests.scripts.cases import CASES, Case

PLAIN = [case for case in CASES if not case.needs_compiler]
COMPILED = [case for case in CASES if case.needs_compiler]
COLD = {"argv", "atexit_output", "at_the_end", "env_threads", "exec_open", "hash_order", "import_failure", "main_guard"}
COLD |= {"no_torch", "pickle_main", "set_threads", "signals", "spawned", "stdin_read", "warnings_out"}
"""Scripts that show how their interpreter began, which are compared with `python script`. The others are compared with
an interpreter that was forked after it had loaded torch."""
AT_NIGHT = {"atexit_output", "hash_order", "main_guard_spawn", "pickle_main", "set_threads", "spawned", "stdin_read"}
AT_NIGHT |= {"warnings_out", "env_threads", "exec_open", "compiled_step_eager", "compiled_method_eager"}
AT_NIGHT |= {"regression_step_eager", "regression_compiled_eager", "compiled_step_apart_eager"}
"""Scripts that CI leaves out: each start of an interpreter, and each script that compiles, takes as long as ten others.
One that compiles, and several that show their interpreter, are left."""
EVERY_CHANGE = [case for case in PLAIN if case.name not in AT_NIGHT]
OTHERS = [case for case in PLAIN if case.name in AT_NIGHT]


@dataclass
class Compared:
    """Run some cases, each alone and all of them shared."""

    alone: dict[str, tuple[int, bytes]]
    shared: Finished

    @classmethod
    def of(cls, cases: list[Case], folder: Path, cold: Container[str]) -> Compared:
        jobs = []
        for case in cases:
            scripts = copy_of_scripts(folder / "shared" / case.name)
            script = str(scripts / case.script)
            jobs.append({"name": case.name, "script": script, "args": list(case.args), "cwd": str(scripts)})

        def one(case: Case) -> tuple[int, bytes]:
            scripts = copy_of_scripts(folder / "alone" / case.name)
            return alone(scripts / case.script, case.args, scripts, case.name in cold)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            results = dict(zip((case.name for case in cases), pool.map(one, cases), strict=True))
        return cls(results, run(folder, *jobs))

    def check(self, case: Case) -> None:
        code, stdout = self.alone[case.name]
        job = self.shared.job(case.name)
        assert code == case.exit_code
        assert job["exit_code"] == (code if code >= 0 else 128 - code)
        if case.repeats:
            assert self.shared.log(case.name) == stdout
        if case.iterations is not None:
            assert job["iterations"] == case.iterations
        if case.eval_iterations is not None:
            assert job["eval_iterations"] == case.eval_iterations


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    return Compared.of(EVERY_CHANGE, tmp_path_factory.mktemp("every"), COLD)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    return Compared.of(OTHERS, tmp_path_factory.mktemp("others"), COLD)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    return Compared.of(COMPILED, tmp_path_factory.mktemp("compiled"), cold={case.name for case in COMPILED})


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", EVERY_CHANGE, ids=lambda case: case.name)
def test_every_script_does_what_python_does(case: Case, every: Compared) -> None:
    every.check(case)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.name)
def test_so_do_those_that_take_long(case: Case, others: Compared) -> None:
    others.check(case)


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler here")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", COMPILED, ids=lambda case: case.name)
def test_the_same_compiled(case: Case, compiled: Compared) -> None:
    compiled.check(case)


@pytest.mark.slow
@pytest.mark.parametrize("ways", [("forked", "hidden"), pytest.param(("fresh",), marks=pytest.mark.nightly)])
def test_what_a_script_has_not_closed_is_written(tmp_path: Path, ways: tuple[str, ...]) -> None:
    jobs = []
    for way in ways:
        scripts = copy_of_scripts(tmp_path / way)
        job: dict[str, Any] = {"name": way, "script": str(scripts / "at_the_end.py"), "cwd": str(scripts)}
        jobs.append({**job, "args": ["--hide"] if way == "hidden" else []})
        if way == "fresh":
            jobs[-1]["isolation"] = "fresh"
    done = run(tmp_path, *jobs)
    for job in jobs:
        written = (Path(job["script"]).parent / "at_the_end.out").read_text()
        assert len(written.splitlines()) == 12
        assert done.job(job["name"])["error"] == "at the end: as it should be"


ATTEMPTS = """
import os, sys
print(os.environ["ECOSHARE_ATTEMPT"], os.environ["ECOSHARE_JOB"], sys.argv[1:])
sys.exit(0 if "--resume" in sys.argv else 7)
"""

LOOP = """
import ecoshare, torch
w = torch.ones(4)
for step in range(25):
    w = w * 0.5
    ecoshare.iteration()
print(w.sum().item())
"""

LATE = """
import threading, torch
def train():
    threading.main_thread().join()
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        model(torch.ones(4)).sum().backward()
        optimizer.step()
    print("trained")
threading.Thread(target=train).start()
"""

MINE = ("core", "json", "messages", "tuner", "turn")
"""Modules of ours, and one of the standard library, which a script has beside it, too."""

BESIDE = """
import core, json, messages, tuner, turn
print(core.mine, json.mine, messages.mine, tuner.mine, turn.mine)
"""

MODULE = """
import sys
from . import other
print(__name__, other.value, sys.argv[1:], __spec__.name)
"""

SHOWS = """
import os
print(os.environ["TOKEN"] == "hunter2", os.environ.get("GOMP" + "_SPINCOUNT"))
"""
"""The name is not written out: a script that names it is given an interpreter of its own."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Run of small scripts, each in a folder of its own."""
    folder = tmp_path_factory.mktemp("small")
    unseeded = str(copy_of_scripts(folder) / "unseeded.py")
    files = {"again/train.py": ATTEMPTS, "loop/train.py": LOOP, "late/train.py": LATE, "shows/train.py": SHOWS}
    files |= {"beside/train.py": BESIDE, **{f"beside/{name}.py": f"mine = {name!r}\n" for name in MINE}}
    files |= {"module/pkg/train.py": MODULE, "module/pkg/other.py": "value = 3\n", "module/pkg/__init__.py": ""}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    jobs: list[dict[str, Any]] = [{"name": name, "script": unseeded} for name in ("one", "two")]
    jobs.append({"name": "again", "args": ["x"], "resume_args": ["--resume"], "retries": 1})
    jobs += [{"name": name, "script": "loop/train.py"} for name in ("loop", "loop-too")]
    jobs += [{"name": "late"}, {"name": "beside"}, {"name": "shows", "env": {"TOKEN": "hunter2"}}]
    jobs = [{"script": f"{job['name']}/train.py", **job} for job in jobs]
    jobs.append({"name": "module", "module": "pkg.train", "args": ["x"], "cwd": "module"})
    done = run(folder, *jobs)
    assert done.code == 0, done.stderr
    return done


@pytest.mark.slow
def test_two_unseeded_copies_draw_different_numbers(small: Finished) -> None:
    one, two = small.log("one").splitlines(), small.log("two").splitlines()
    assert len(one) == len(two) > 3
    assert not set(one) & set(two)


@pytest.mark.slow
def test_a_job_is_told_its_attempt_and_gets_its_resume_arguments(small: Finished) -> None:
    assert small.log("again") == b"2 again ['x', '--resume']\n"
    assert (small.folder / "jobs/again/stdout.attempt-1.log").read_bytes() == b"1 again ['x']\n"
    assert small.job("again")["attempts"] == 2


def test_a_script_may_say_itself_where_an_iteration_ends(small: Finished, tmp_path: Path) -> None:
    assert [small.job(name)["iterations"] for name in ("loop", "loop-too")] == [25, 25]
    (tmp_path / "loop.py").write_text(LOOP)
    assert small.log("loop") == alone(tmp_path / "loop.py", (), tmp_path)[1]


def test_iterations_in_a_thread_that_outlives_the_main_code_are_counted(small: Finished) -> None:
    assert small.job("late")["iterations"] == 20
    assert small.log("late") == b"trained\n"


def test_modules_beside_the_script_win_over_ours_and_the_librarys(small: Finished) -> None:
    assert small.log("beside") == b"core json messages tuner turn\n"


def test_a_module_is_run_as_python_m_would(small: Finished) -> None:
    assert small.log("module") == b"__main__ 3 ['x'] pkg.train\n"


def test_environment_of_a_job_reaches_it_and_no_file(small: Finished) -> None:
    assert small.log("shows") == b"True None\n"
    for path in small.folder.rglob("*"):
        assert not path.is_file() or b"hunter2" not in path.read_bytes(), path
    assert small.folder.resolve().stat().st_mode & 0o777 == 0o700


@pytest.mark.nightly
def test_a_fresh_interpreter_gives_the_same(tmp_path: Path) -> None:
    scripts = copy_of_scripts(tmp_path)
    ways: dict[str, dict[str, Any]] = {
        "isolation": {"isolation": "fresh"},
        "python": {"python": sys.executable},
        "env": {"env": {"OMP_NUM_THREADS": "1"}},
    }
    jobs = [{"name": name, "script": str(scripts / "validation.py"), **keys} for name, keys in ways.items()]
    done = run(tmp_path, *jobs, {"name": "forked", "script": str(scripts / "several_optimizers.py")})
    for name, keys in ways.items():
        assert done.log(name) == alone(scripts / "validation.py", (), scripts, **keys.get("env", {}))[1], name
        assert done.job(name)["iterations"] == 12
