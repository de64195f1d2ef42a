"""The programs of docs/commands.md run, one after the other as on the page, and print what it shows."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from ecoshare.cli.init import example_scripts
from tests.docs.examples import blocks, difference
from tests.warm import ROOT, Started

PAGE = ROOT / "docs" / "commands.md"


@pytest.mark.nightly
def test_the_programs_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    """A failure means that a reader of the page would get an error or another result."""
    programs, shown = [], []
    for block, after in pairwise([*blocks(PAGE), None]):
        assert block is not None
        if block.mark("python") is not None:
            assert after is not None and after.language == "text", f"line {block.line}: what does it print?"
            programs.append(block.text)
            shown += after.text.splitlines()
    assert len(programs) > 3
    for path, content in example_scripts(tmp_path).items():
        path.write_bytes(content)
    (tmp_path / "program.py").write_text("".join(programs))
    done = Started(cwd=tmp_path, script=tmp_path / "program.py").done()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert not (unlike := difference(shown, done.stdout.splitlines())), unlike
