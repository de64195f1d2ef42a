"""Recorded runs of all kinds: the core decides as it did, and the commands tell the same, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.record import event_log
from ecoshare.record.run_folder import RunFolder
from tests.golden.archive import NAMES, OUTPUTS, run_folder, tell, told

DRAWN = ("report.txt",)
"""Outputs that take a second, since charts are drawn."""


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    run_folder(request.param, tmp_path)
    monkeypatch.chdir(tmp_path)
    return str(request.param)


def test_the_core_decides_as_it_did(name: str, tmp_path: Path) -> None:
    (folder,) = (tmp_path / "runs").iterdir()
    for event, logged, now in event_log.replay(event_log.read(RunFolder(folder).events)):
        assert now[: len(logged)] == logged, event


@pytest.mark.slow
def test_commands_tell_the_same(name: str) -> None:
    before = told(name)
    for output in OUTPUTS.keys() - DRAWN:
        assert tell(output) == before[output], output


@pytest.mark.nightly
def test_the_report_tells_the_same(name: str) -> None:
    before = told(name)
    for output in DRAWN:
        assert tell(output) == before[output], output
