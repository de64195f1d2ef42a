"""docs/tuning.md: its programs run, its command is one, and what it prints is what the page shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm import ROOT, ecoshare

PAGE = (ROOT / "docs" / "tuning.md").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [text for name, text in found if name == language]


def python(program: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_example_of_the_library_finds_a_setting_that_saves(tmp_path: Path) -> None:
    program = blocks("python")[0]
    found = python(program + "\nprint(measure(best.setting)['time_s'] / measure(default)['time_s'])\n", tmp_path)
    words, slower = found.splitlines()
    saved = re.search(r"} (0\.\d\d) of the default's energy$", words)
    assert saved is not None and float(saved[1]) < 0.95, found
    assert float(slower) <= 1.1, "the example breaks its own limit"


def test_the_example_of_the_command_prints_what_the_page_shows(tmp_path: Path) -> None:
    python(blocks("python")[1], tmp_path)
    (command,) = [each for each in blocks("console") if "--replay" in each]
    (shown,) = blocks("")
    words = shlex.split(command.removeprefix("$ "))
    assert words[0] == "ecoshare"
    done = ecoshare(*words[1:], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "frontier.svg").exists()
    # Which settings are tried may change with the optimizer's version; what the table has does not.
    settled = ("trial ", "    1 ", "default ", "best of table ", "best static")
    expected = [line for line in shown.splitlines() if line.startswith(settled)]
    assert len(expected) == 6
    assert [line.rstrip() for line in done.stdout.splitlines() if line.startswith(settled)] == expected
    assert len(re.findall(r"^ +\d+ ", done.stdout, re.MULTILINE)) >= 3
    assert "chosen " in done.stdout and done.stdout.endswith("plot: frontier.svg\n")
