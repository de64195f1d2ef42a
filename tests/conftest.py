"""Fixtures and settings of all tests."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import re
import signal
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.internal.constants_ast import Constants
from xdist.scheduler import LoadScopeScheduling

from ecoshare.devices.processor_load import QUIET
from ecoshare.runtime.signals import ENDING
from tests.rounds import is_nightly
from tests.warm import ROOT, ending_what_runs, share_zygotes

# The same examples every time: new ones are for people to find at night, not for an unrelated change.
settings.register_profile("quick", max_examples=25, deadline=None, print_blob=True, derandomize=True)
settings.register_profile("nightly", settings.get_profile("quick"), max_examples=100, derandomize=False)
settings.register_profile("faults", settings.get_profile("quick"), phases=(Phase.explicit, Phase.generate))
settings.load_profile("quick")  # `--hypothesis-profile` loads another one

PARTS = {"nightly": "scripts/nightly", "slow": "scripts/test -m slow"}
"""Markers of tests that are not quick, and the command that runs these tests. The first of a test's counts."""

OF_THE_MACHINE = re.compile(
    "no CUDA device|needs an accelerator|ECOSHARE_DATA names no|root|this kernel|a machine of [0-9]+ cores|no namespace"
)
"""Reasons to skip that no installation removes. Any other one fails the tests with `--no-skips`."""

_number = itertools.count()
"""Numbers of tests, in the order in which they run."""

_left_out: dict[str, int] = {}
"""Number of tests with these markers that were left out."""


_handlers = {**{number: signal.getsignal(number) for number in ENDING}, signal.SIGINT: signal.default_int_handler}
"""Handlers of signals at the begin of each test. A test suite in the background would ignore Ctrl-C."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol() -> None:
    """Put the handlers back: a whole run in this process ignores Ctrl-C at its end, as a command may.

    Otherwise a later test that sends itself one would wait for ever.
    """
    for number, handler in _handlers.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add an option for CI, which installs all that its tests need, and one for `scripts/nightly`."""
    parser.addoption("--no-skips", action="store_true", help="fail if a test skips that could run on this machine")
    parser.addoption("--night", type=int, help="run the modules of this night alone: each has its turn in one of two")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the modules of the other night, and let those tests begin first that may take long.

    One that begins last would go on alone at the end, while other workers have nothing to do.
    """
    if (night := config.getoption("night")) is not None:
        of_night: dict[bool, list[pytest.Item]] = {True: [], False: []}
        for item in items:
            of_night[zlib.crc32(item.nodeid.partition("::")[0].encode()) % 2 == night % 2].append(item)
        config.hook.pytest_deselected(items=of_night[False])
        items[:] = of_night[True]
    if hasattr(config, "workerinput"):
        items.sort(key=_begins)


def _begins(item: pytest.Item) -> tuple[bool, bool]:
    timeout, slow = item.get_closest_marker("timeout"), item.get_closest_marker("slow")
    return timeout is None, slow is None


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count what is left out."""
    for item in items:
        part = next((each for each in PARTS if item.get_closest_marker(each)), "quick")
        _left_out[part] = _left_out.get(part, 0) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell what was left out, from worker to controller; with `--no-skips`, fail for a skip that need not be."""
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["left out"] = _left_out
    elif session.exitstatus == 0 and _needless_skips(config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear from a worker what was left out: the same from each."""
    _left_out.update(getattr(node, "workeroutput", {}).get("left out", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what was left out, and which skips fail the tests."""
    told = [f"{_left_out[each]} {each} ({command})" for each, command in PARTS.items() if each in _left_out]
    if told:
        terminalreporter.write_line(f"left out: {', '.join(told)}")
    for reason in _needless_skips(config):
        terminalreporter.write_line(f"SKIPPED WITHOUT NEED: {reason}", red=True)


def _needless_skips(config: pytest.Config) -> list[str]:
    if not config.getoption("no_skips"):
        return []
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", [])
    reasons = [f"{each.nodeid}: {each.longrepr[2].removeprefix('Skipped: ')}" for each in skipped]
    return [each for each in reasons if not OF_THE_MACHINE.search(each.partition(": ")[2])]


@pytest.hookimpl(trylast=True)  # the profile of Hypothesis is loaded
def pytest_configure(config: pytest.Config) -> None:
    """Let parallel workers share the processes from which commands are forked, and keep examples the same."""
    if not is_nightly():
        # Examples would take constants from all loaded modules, so they would differ with the tests that ran before.
        HypothesisProvider._local_constants = Constants()  # type: ignore[assignment]
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        share_zygotes("server", "command", *(() if "not slow" in config.option.markexpr else ("script",)))


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
def _profiles_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep tests from the user's own profiles and the state folder of this machine. Yields a folder for profiles."""
    own = {"ECOSHARE_PROFILES": "profiles", "ECOSHARE_STATE": "state"}
    for name, folder in own.items():
        os.environ[name] = str(tmp_path_factory.mktemp(folder))
    os.environ[QUIET] = "1"  # other tests are other programs
    yield Path(os.environ["ECOSHARE_PROFILES"])
    for name in (*own, QUIET):
        del os.environ[name]


@pytest.fixture(autouse=True)
def _no_command_outlives_its_test() -> Iterator[None]:
    """End the commands that a test has left running, as one that failed may."""
    with ending_what_runs():
        yield


@pytest.fixture(autouse=True)
def _own_profiles(_profiles_of_all: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a folder of profiles of its own, which is made where one is written.

    `tmp_path` would make a folder for every test, and look through those of all tests before it.
    """
    monkeypatch.setenv("ECOSHARE_PROFILES", str(_profiles_of_all / str(next(_number))))
