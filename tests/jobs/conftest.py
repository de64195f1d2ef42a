"""Tables of wrong job files, in the user's own notation.

A module with tests that take `wrong_file` holds a table `CASES` of blocks::

    === what is wrong
    the file
    --- mistakes
    line:column: where: what

so that a reader sees file and message together. `→` stands for a tab.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest

KNOWN_KEYS = (
    "cwd, env, python, class, arrival, priority, iterations, gpus, most_gpus, nodes, launch, slowdown, isolation, "
    "retries, resume_args, preemptible, timeout, startup_timeout, on_end, name, script, module, args, "
    "after, after_ok, after_any, sweep, service"
)
# Abbreviations of texts that would make the lines of a table too long.
ABBREVIATIONS = {
    "{NAME}": "expected up to 100 letters, digits, '.', '_' or '-' that do not begin with '.' or '-', got",
    "{DURATION}": "expected a duration such as '250 ms', '2 min' or '1.5 h' "
    "(units: us, ms, s, min, h, d; a bare number is seconds), got",
    "{KNOWN}": f"known are {KNOWN_KEYS}",
    "{LONG}": "x" * 101,
    "{DIMENSION}": "expected a list of choices, or one of {uniform: [0, 1]}, {log: [1e-4, 0.1]}, {int: [1, 8]} and "
    "{log_int: [16, 256]}, got",
    "{METRIC}": "expected what the script prints, such as 'val_loss={:f}' with '{:f}' where the number stands, or a "
    "name that it gives to ecoshare.report(), got",
    "{OPTUNA}": f"optuna {metadata.version('optuna')}",
    "→": "\t",
}


@dataclass(frozen=True)
class WrongFile:
    """Text of a file, and the mistakes that must be reported; `{HERE}` stands for its folder."""

    text: str
    mistakes: list[str]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "wrong_file" in metafunc.fixturenames:
        cases = _parse(metafunc.module.CASES)
        metafunc.parametrize("wrong_file", list(cases.values()), ids=list(cases))


def _parse(table: str) -> dict[str, WrongFile]:
    for short, long in ABBREVIATIONS.items():
        table = table.replace(short, long)
    cases = {}
    for block in table.strip("\n").removeprefix("=== ").split("\n=== "):
        name, rest = block.split("\n", 1)
        text, mistakes = rest.split("--- mistakes\n")
        assert name not in cases, f"two cases are named {name!r}"
        cases[name] = WrongFile(text, mistakes.splitlines())
    return cases


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Current folder, with a script `train.py` and an empty folder `folder`."""
    (tmp_path / "train.py").touch()
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path
