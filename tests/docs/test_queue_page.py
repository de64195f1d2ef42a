"""The examples of docs/queue.md run in an empty folder, one after the other, and print what the page shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.examples import Block, Step, blocks, difference, steps
from tests.warm import COLD, ROOT

PAGE = ROOT / "docs" / "queue.md"
IN_ORDER = [block for block in blocks(PAGE) if block.mark("in order") is not None]
STATE = "~/.local/state/ecoshare"
"""State folder of a user, as the page names it."""

_CHANGING = (
    (re.compile(r"\bprocess \d+"), "process N"),
    (re.compile(r"\bup for .*"), "up for TIME"),
    (re.compile(r"\b\d[\d.]* (?:ms|s|min|h)\b(?: \d+ (?:s|min)\b)?"), "TIME"),
    (re.compile(r"\berror \d\.\d+"), "error N"),
)


def alike(lines: list[str]) -> list[str]:
    """Lines without what differs from one run to the next: times, process numbers, losses."""
    found = []
    for line in lines:
        for pattern, word in _CHANGING:
            line = pattern.sub(word, line)
        found.append(line)
    return found


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Environment of a user with a state folder that is empty, on processors; its queue is down at the end."""
    monkeypatch.delenv("ECOSHARE_QUEUE", raising=False)
    made = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "ECOSHARE_STATE": str(tmp_path / "state"),
        "ECOSHARE_PROFILES": str(tmp_path / "profiles"),
        "ECOSHARE_ASSUME_QUIET": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "COLUMNS": "100",
    }
    yield made
    subprocess.run([*COLD, "down", "--now"], env=made, capture_output=True, check=False)


def run(block: Block, folder: Path, environment: dict[str, str]) -> Iterator[tuple[Step, str]]:
    """Each command of a block with what it printed. A program of Python is one command."""
    todo = steps(block) if block.language == "console" else [Step("python - <<'END'\n" + block.text + "END", ())]
    for step in todo:
        command = step.command.replace(STATE, environment["ECOSHARE_STATE"])
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{step.command}\n{done.stdout}{done.stderr}"
        yield step, done.stdout.replace(environment["ECOSHARE_STATE"], STATE)


@pytest.mark.nightly
@pytest.mark.cold
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("curl") is None, reason="the page asks the queue with curl")
def test_the_page_runs(tmp_path: Path, environment: dict[str, str]) -> None:
    """If it failed, the page would show something else than its commands print."""
    (folder := tmp_path / "work").mkdir()
    for block in blocks(PAGE):
        if (file := block.mark("file")) is not None:
            (folder / file).write_text(block.text)
    printed = {}
    for block in IN_ORDER:
        for step, said in run(block, folder, environment):
            printed[step.command] = said
            if step.shown:
                unlike = difference(alike(list(step.shown)), alike(said.splitlines()))
                assert not unlike, f"{step.command}: {unlike}"
    assert printed.popitem()[1].startswith('{"name":"long","state":"completed"'), "the answer over HTTP"
    assert any(said == "forecast_series completed 0\n" for said in printed.values()), "the program of the page"


def test_the_page_has_its_examples() -> None:
    """If it failed, the test above would run nothing."""
    commands = [step.command for block in IN_ORDER if block.language == "console" for step in steps(block)]
    assert sum(each.startswith("ecoshare ") for each in commands) > 8 and any("kill -9" in each for each in commands)
    assert [block.language for block in IN_ORDER].count("python") == 1
