"""Notes that are the same for every run are printed once a machine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ecoshare.devices.control.state_folder import StateFolder
from ecoshare.runtime.told_once import is_news
from tests.runtime import running
from tests.warm import ecoshare


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    monkeypatch.setenv("ECOSHARE_STATE", str(folder))
    return folder


def test_the_same_words_are_told_once_and_others_again() -> None:
    assert is_news("search on cpu", "no RAPL")
    assert not is_news("search on cpu", "no RAPL")
    assert is_news("search on GPU-1", "no RAPL"), "another device"
    assert is_news("search on cpu", "no permission"), "another reason"
    assert is_news("search on cpu", "no RAPL"), "the first one, come back"


def test_notes_are_no_journals(state: Path) -> None:
    is_news("search on cpu", "no RAPL")
    assert list(state.rglob("*.json")) and not list(StateFolder.of_this_user().all_journals())


@pytest.mark.parametrize("content", ["", "[]", '{"search on cpu": 1}', "\x00"])
def test_a_damaged_memory_tells_again_and_is_mended(state: Path, content: str) -> None:
    is_news("search on cpu", "no RAPL")
    (path,) = state.rglob("*.json")
    path.write_text(content)
    assert is_news("search on cpu", "no RAPL")
    assert json.loads(path.read_text()) == {"search on cpu": "no RAPL"}


def test_where_nothing_can_be_remembered_a_note_is_told_each_time(state: Path) -> None:
    state.write_text("no folder")
    assert is_news("search on cpu", "no RAPL") and is_news("search on cpu", "no RAPL")


@pytest.mark.nightly
def test_runs_tell_once_why_nothing_is_searched_and_doctor_always(tmp_path: Path) -> None:
    """The test needs a machine without a meter for its processors."""
    # A process of its own: other tests may have loaded their stand-in for NVIDIA's library into this one.
    findings = json.loads(ecoshare("doctor", "--json", cwd=tmp_path).stdout)
    (search,) = [finding for finding in findings if finding["subject"] == "search"]
    if search["verdict"] == "ok":
        pytest.skip("joules are measured here: settings are searched")
    told = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        done = running.run(
            folder,
            running.slow_steps("a", 3),
            options=("--objective", "energy", "--profiles", str(tmp_path / "profiles")),
            ECOSHARE_STATE=os.environ["ECOSHARE_STATE"],
        )
        told.append([line for line in done.stderr.splitlines() if "no setting is searched" in line])
    assert [len(lines) for lines in told] == [1, 0]
    assert search["evidence"] in told[0][0], "doctor gives another reason"
