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

from tests.rounds import is_nightly
from tests.runtime.running import Finished, alone, copy_of_scripts, run
from tests.scripts.cases import CASES, QUICK, Case

PLAIN = [case for case in CASES if not case.needs_compiler]
SOME = [case for case in PLAIN if case.name in QUICK]
COMPILED = [case for case in CASES if case.needs_compiler]
COLD = {"argv", "atexit_output", "at_the_end", "env_threads", "exec_open", "hash_order", "import_failure", "main_guard"}
COLD |= {"no_torch", "pickle_main", "set_threads", "signals", "spawned", "stdin_read", "warnings_out"}
"""Scripts that show how their interpreter began, which are compared with `python script`. The others are compared with
it at night only, and otherwise with an interpreter that was forked after it had loaded torch."""


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
def some(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    return Compared.of(SOME, tmp_path_factory.mktemp("some"), cold=())


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    cold = {case.name for case in PLAIN} if is_nightly() else COLD
    return Compared.of(PLAIN, tmp_path_factory.mktemp("every"), cold)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    return Compared.of(COMPILED, tmp_path_factory.mktemp("compiled"), cold={case.name for case in COMPILED})


@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", SOME, ids=lambda case: case.name)
def test_the_same_shared_as_alone(case: Case, some: Compared) -> None:
    some.check(case)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.name)
def test_every_script_does_what_python_does(case: Case, every: Compared) -> None:
    every.check(case)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler here")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", COMPILED, ids=lambda case: case.name)
def test_the_same_compiled(case: Case, compiled: Compared) -> None:
    compiled.check(case)


@pytest.mark.parametrize("ways", [("forked", "hidden"), pytest.param(("fresh",), marks=pytest.mark.slow)])
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
        assert done.job(job["name"])["error"] == "exit code 1: at the end: as it should be"


def test_two_unseeded_copies_draw_different_numbers(tmp_path: Path) -> None:
    scripts = copy_of_scripts(tmp_path)
    done = run(tmp_path, *({"name": name, "script": str(scripts / "unseeded.py")} for name in ("one", "two")))
    one, two = done.log("one").splitlines(), done.log("two").splitlines()
    assert len(one) == len(two) > 3
    assert not set(one) & set(two)


def test_a_job_is_told_its_attempt_and_gets_its_resume_arguments(tmp_path: Path) -> None:
    script = tmp_path / "again.py"
    script.write_text(
        "import os, sys\n"
        "print(os.environ['ECOSHARE_ATTEMPT'], os.environ['ECOSHARE_JOB'], sys.argv[1:])\n"
        "sys.exit(0 if '--resume' in sys.argv else 7)\n"
    )
    done = run(tmp_path, {"name": "a", "script": "again.py", "args": ["x"], "resume_args": ["--resume"], "retries": 1})
    assert done.code == 0
    assert done.log("a") == b"2 a ['x', '--resume']\n"
    assert (done.folder / "jobs/a/stdout.attempt-1.log").read_bytes() == b"1 a ['x']\n"
    assert done.job("a")["attempts"] == 2


def test_a_script_may_say_itself_where_an_iteration_ends(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(
        "import ecoshare, torch\n"
        "w = torch.ones(4)\n"
        "for step in range(25):\n"
        "    w = w * 0.5\n"
        "    ecoshare.iteration()\n"
        "print(w.sum().item())\n"
    )
    done = run(tmp_path, {"name": "a", "script": "loop.py"}, {"name": "b", "script": "loop.py"})
    assert [done.job(name)["iterations"] for name in "ab"] == [25, 25]
    assert done.log("a") == alone(tmp_path / "loop.py", (), tmp_path)[1]


def test_iterations_in_a_thread_that_outlives_the_main_code_are_counted(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(
        "import threading, torch\n"
        "def train():\n"
        "    threading.main_thread().join()\n"
        "    model = torch.nn.Linear(4, 4)\n"
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "    for _ in range(20):\n"
        "        model(torch.ones(4)).sum().backward()\n"
        "        optimizer.step()\n"
        "    print('trained')\n"
        "threading.Thread(target=train).start()\n"
    )
    done = run(tmp_path, {"name": "a", "script": "late.py"})
    assert done.job("a")["iterations"] == 20
    assert done.log("a") == b"trained\n"


def test_modules_beside_the_script_win_over_ours_and_the_librarys(tmp_path: Path) -> None:
    for name in ("json", "core", "tuner", "messages", "turn"):
        (tmp_path / f"{name}.py").write_text(f"mine = {name!r}\n")
    (tmp_path / "train.py").write_text(
        "import core, json, messages, tuner, turn\nprint(core.mine, json.mine, messages.mine, tuner.mine, turn.mine)\n"
    )
    done = run(tmp_path, {"name": "a", "script": "train.py"})
    assert done.log("a") == b"core json messages tuner turn\n"


def test_a_module_is_run_as_python_m_would(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "other.py").write_text("value = 3\n")
    (package / "train.py").write_text(
        "import sys\nfrom . import other\nprint(__name__, other.value, sys.argv[1:], __spec__.name)\n"
    )
    done = run(tmp_path, {"name": "a", "module": "pkg.train", "args": ["x"]})
    assert done.log("a") == b"__main__ 3 ['x'] pkg.train\n"


def test_environment_of_a_job_reaches_it_and_no_file(tmp_path: Path) -> None:
    # The name is not written out: a script that names it is given an interpreter of its own.
    (tmp_path / "show.py").write_text(
        "import os\nprint(os.environ['TOKEN'] == 'hunter2', os.environ.get('GOMP' + '_SPINCOUNT'))\n"
    )
    done = run(tmp_path, {"name": "a", "script": "show.py", "env": {"TOKEN": "hunter2"}})
    assert done.log("a") == b"True None\n"
    for path in done.folder.rglob("*"):
        assert not path.is_file() or b"hunter2" not in path.read_bytes(), path
    assert done.folder.resolve().stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        {"isolation": "fresh"},
        {"python": sys.executable},
        {"env": {"OMP_NUM_THREADS": "1"}},
    ],
    ids=["isolation", "python", "env"],
)
def test_a_fresh_interpreter_gives_the_same(tmp_path: Path, keys: dict[str, Any]) -> None:
    scripts = copy_of_scripts(tmp_path)
    job = {"name": "a", "script": str(scripts / "validation.py"), **keys}
    done = run(tmp_path, job, {"name": "b", "script": str(scripts / "several_optimizers.py")})
    assert done.log("a") == alone(scripts / "validation.py", (), scripts, **keys.get("env", {}))[1]
    assert done.job("a")["iterations"] == 12
