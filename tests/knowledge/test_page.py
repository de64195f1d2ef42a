"""Examples of the library in docs/tuning.md do what the page says. tests/docs runs the commands."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm import ROOT

PAGE = (ROOT / "docs" / "tuning.md").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [text for name, text in found if name == language]


def python(program: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.nightly
def test_the_example_of_the_library_finds_a_setting_that_saves(tmp_path: Path) -> None:
    program = blocks("python")[0]
    found = python(program + "\nprint(measure(best.setting)['time_s'] / measure(default)['time_s'])\n", tmp_path)
    words, slower = found.splitlines()
    saved = re.search(r"} (0\.\d\d) of the default's energy$", words)
    assert saved is not None and float(saved[1]) < 0.95, found
    assert float(slower) <= 1.1, "the example breaks its own limit"


@pytest.mark.nightly
def test_the_example_of_other_acquisition_functions_gives_settings(tmp_path: Path) -> None:
    one, other = blocks("python")[:2]
    assert "botorch" in other
    printed = python(f"{one}\n{other}", tmp_path).splitlines()
    asked = [ast.literal_eval(line) for line in printed[1:]]
    assert len(asked) == 3 and asked[0] != asked[1], printed
    assert all(setting.keys() == {"gpu_clock", "power_limit"} for setting in asked), printed
