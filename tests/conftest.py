"""Fixtures and settings of all tests."""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from ecoshare.devices.processor_load import QUIET
from tests.warm import ROOT, ending_what_runs, share_zygotes

for name, examples in (("quick", 5), ("ci", 50), ("nightly", 1000)):
    settings.register_profile(name, max_examples=examples, deadline=None, print_blob=True)
settings.load_profile("quick")  # `--hypothesis-profile` loads another one


def pytest_configure(config: pytest.Config) -> None:
    """Let parallel workers share the processes from which commands are forked."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        share_zygotes()


class ByModule(LoadScopeScheduling):  # type: ignore[misc]
    """Scheduler of workers: tests of a module with shared fixtures, or of a class, go to one worker; others to any.

    Tests of a policy's contract are a class, and share its simulations.

    xdist's own groups go by `_nodeid`, which the nodes of pytest 9.2 no longer have.
    """

    def _split_scope(self, nodeid: str) -> str:
        module, _, name = nodeid.partition("::")
        if _has_module_fixture(module):
            return module
        in_class = name.partition("[")[0].rpartition("::")[0]
        return f"{module}::{in_class}" if in_class else nodeid


@functools.cache
def _has_module_fixture(module: str) -> bool:
    return 'scope="module"' in (ROOT / module).read_text()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByModule | None:
    """Use this scheduler with `--dist loadgroup`, which `scripts/test` sets."""
    return ByModule(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_collection_finish() -> None:
    """Freeze the million objects of torch and others, so that a test that collects garbage does not visit them."""
    gc.collect()
    gc.freeze()
    if "torch" in sys.modules:  # two workers' threads would spin for each other's processors
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _profiles_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep tests from the user's own profiles and from the state folder of this machine."""
    own = {"ECOSHARE_PROFILES": "profiles", "ECOSHARE_STATE": "state"}
    for name, folder in own.items():
        os.environ[name] = str(tmp_path_factory.mktemp(folder))
    os.environ[QUIET] = "1"  # other tests are other programs
    yield
    for name in (*own, QUIET):
        del os.environ[name]


@pytest.fixture(autouse=True)
def _no_command_outlives_its_test() -> Iterator[None]:
    """End the commands that a test has left running, as one that failed may."""
    with ending_what_runs():
        yield


@pytest.fixture(autouse=True)
def _own_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a folder of profiles of its own."""
    monkeypatch.setenv("ECOSHARE_PROFILES", str(tmp_path / "own-profiles"))
