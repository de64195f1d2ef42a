"""Console examples of README.md and docs/*.md run, and print the output that their pages show."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.examples import Block, blocks, difference, masked, steps
from tests.simulation.installing import install
from tests.warm import COLD, ROOT, ecoshare

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CONSOLE = [block for page in PAGES for block in blocks(page) if block.language == "console"]
RUN = [block for block in CONSOLE if block.mark("not run") is None and block.mark("in order") is None]
_WIDTH = "80"


def name(block: Block) -> str:
    return f"{block.page.name}:{block.line}"


def _marks(block: Block) -> list[pytest.MarkDecorator]:
    """Whether a block is slow: one that runs jobs, simulates or searches takes seconds to half a minute."""
    long = ("ecoshare run ", "ecoshare simulate ", "ecoshare tune ", "ecoshare devices --calibrate")
    return [pytest.mark.slow] if any(step.command.startswith(long) for step in steps(block)) else []


@pytest.mark.nightly
@pytest.mark.parametrize("block", [pytest.param(each, id=name(each), marks=_marks(each)) for each in RUN])
def test_a_console_example_prints_what_its_page_shows(block: Block, tmp_path: Path) -> None:
    cores = block.mark("cores")
    if cores is not None and len(os.sched_getaffinity(0)) != int(cores):
        pytest.skip(f"the page shows a machine of {cores} cores")
    _fetch(block, tmp_path)
    environment = _prepare(block, tmp_path)
    for step in steps(block):
        words = shlex.split(step.command)
        assert words[0] == "ecoshare", "give the block a comment with the reason why it is not run"
        if "PYTHONPATH" in environment:  # a package is installed beside it, which a warm command would not see
            done = subprocess.run(
                [*COLD, *words[1:]], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
            )
        else:
            done = ecoshare(*words[1:], cwd=tmp_path, environment=environment)
        assert done.returncode == 0, done.stderr
        if step.shown:
            assert not (unlike := difference(step.shown, done.stdout.splitlines())), unlike


def _fetch(block: Block, folder: Path) -> None:
    wanted = block.mark("data")
    if wanted is None:
        return
    if "ECOSHARE_DATA" not in os.environ:
        pytest.skip(f"ECOSHARE_DATA names no folder with {wanted}")
    shutil.copy(Path(os.environ["ECOSHARE_DATA"]) / wanted, folder)


def _prepare(block: Block, folder: Path) -> dict[str, str]:
    """Make the files that the page has made above the block; returns the environment of its commands."""
    environment = {**os.environ, "COLUMNS": _WIDTH}
    for each in blocks(block.page):
        file = each.mark("file")
        if file is not None:  # one that the page shows further down is meant, too
            (folder / file).write_text(each.text)
        if each.line < block.line and each.mark("run") is not None:
            done = subprocess.run(
                [sys.executable, "-c", each.text], capture_output=True, text=True, cwd=folder, check=False
            )
            assert done.returncode == 0, done.stderr
    if (folder / "pyproject.toml").exists():
        install(folder)
        environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT)])
    return environment


@pytest.mark.parametrize("block", [each for each in CONSOLE if each.mark("not run") is not None], ids=name)
def test_an_example_that_is_not_run_says_why(block: Block) -> None:
    assert len(block.mark("not run") or "") > 10
    assert steps(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_stand_in_console_blocks(page: Path) -> None:
    """In another kind of block nothing would compare the output of the commands."""
    for block in blocks(page):
        assert block.language == "console" or not block.text.startswith("$ "), f"{name(block)}: is it ```console?"


def test_what_an_example_prints_is_compared() -> None:
    """The comparison allows gaps where the page has them, and nowhere else."""
    printed = ["a  1", "b  2", "c  3", "run 20261122-101307", ""]
    assert not difference(["a 1", "b 2", "c 3", "run 20200101-000000"], printed)
    assert not difference(["a 1", "...", "run 20200101-000000"], printed)
    assert not difference(["...", "b 2", "...", "run 20200101-000000"], printed)
    for wrong in (["a 1", "b 2", "c 3"], ["...", "c 3"], ["b 2", "..."], ["a 1", "...", "b 3", "..."], []):
        assert difference(wrong, printed), wrong
    assert masked(["p     p    wall", "x     y    time", "fifo  1  91.9", "", "a 1"]) == [
        "p p",
        "x y",
        "fifo 1",
        "",
        "a 1",
    ]


def test_a_comment_marks_only_the_block_below_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- not run: no GPU -->\n```console\n$ a\n```\n\n<!-- run -->\n\ntext\n\n```console\n$ b\n```\n")
    first, second = blocks(page)
    assert first.mark("not run") == "no GPU" and second.marks == ()
    assert (first.line, second.line) == (2, 10)
