"""A new policy is one new file in `ecoshare/core/policies/`: nothing else names the policies."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ecoshare
from ecoshare.core.policies import known_names, named, own_names

NEWEST_FIRST = '''
"""Newest first: the job that arrived last goes first."""

from ecoshare.core.policies.common import WithOptions


class NewestFirst(WithOptions):
    """Policy that starts the newest of the jobs that arrived at least `apart` seconds apart."""

    name, preempts = "newest-first", False
    options = ("apart",)

    def __init__(self, options):
        self.apart_s = options.get("apart", 1.0)

    def order(self, job, at_s):
        return (-(job.arrival_s // self.apart_s),)
'''

CONTRACT = """
from ecoshare.testing.policy_contract import PolicyContract


class TestNewestFirst(PolicyContract):
    policy = "newest-first"
    options = (("apart", 3.0),)
"""

COMPLETION = "from ecoshare.cli.completion import policies; print(policies('ne'))"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a copy of the package, to which one file was added."""
    folder = tmp_path_factory.mktemp("copy")
    source = Path(ecoshare.__file__).parent
    shutil.copytree(source, folder / "ecoshare", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "ecoshare" / "core" / "policies" / "newest_first.py").write_text(NEWEST_FIRST)
    (folder / "test_newest_first.py").write_text(CONTRACT)
    return folder


def python(folder: Path, *args: str) -> str:
    """Output of a Python process that imports the copy."""
    done = subprocess.run([sys.executable, *args], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_command_line_simulates_a_policy_that_is_one_new_file(copy: Path) -> None:
    """Fails if a second place must name a policy, its module or its options."""
    trace = ("--generate", "salus", "--jobs", "30", "--json")
    policies = ("--policy", "newest-first,fifo", "--option", "apart=2")
    found = json.loads(python(copy, "-m", "ecoshare", "simulate", *trace, *policies))
    newest, fifo = found["policies"]
    assert (newest["policy"], fifo["policy"]) == ("newest-first", "fifo")
    assert newest["mean_jct_s"] != fifo["mean_jct_s"], "the new file does not decide"


@pytest.mark.nightly
def test_the_new_policy_can_be_completed_and_keeps_the_contract(copy: Path) -> None:
    """Fails if shell completion or the contract of policies knows the policies from elsewhere."""
    assert python(copy, "-c", COMPLETION).strip() == "['newest-first']"
    assert "12 passed" in python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_newest_first.py")


@pytest.mark.slow
def test_a_mistaken_option_is_refused_by_the_options_of_the_file(copy: Path) -> None:
    """Fails if the options of a policy are listed anywhere but in its class."""
    line = [sys.executable, "-m", "ecoshare", "simulate", "--generate", "philly", "--policy", "newest-first"]
    done = subprocess.run([*line, "--option", "part=2"], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "expected one of apart" in done.stderr


@pytest.mark.parametrize("name", own_names())
def test_each_name_is_that_of_a_policy(name: str) -> None:
    """Fails if a module of the folder defines no policy, or one of another name."""
    assert named(name).name == name and named(name).__module__.startswith("ecoshare.core.policies.")


def test_names_are_known_before_any_policy_is_imported() -> None:
    """Fails if shell completion of `--policy`, or a run under one policy, imports all policies."""
    program = (
        "from ecoshare.core.policies import known_names, named; import sys; known_names(); named('fifo');"
        "print(*(name for name in sys.modules if name.startswith('ecoshare.core.policies.')))"
    )
    seen = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert set(seen) == {f"ecoshare.core.policies.{name}" for name in ("base", "common", "orders")}
    assert set(own_names()) <= set(known_names())
