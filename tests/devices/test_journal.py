"""The journal is on the disk before anything is set, and is believed only if no other user could have written it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.devices.control import journal
from ecoshare.devices.control.journal import Journal, UntrustedJournal

readings = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=4).map(tuple)


@given(
    st.dictionaries(
        st.sampled_from(["power_limit", "gpu_clock", "cpu_frequency"]),
        st.tuples(st.none() | readings, st.lists(readings, max_size=2).map(tuple)),
    )
)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, knobs: dict) -> None:  # type: ignore[type-arg]
    path = tmp_path_factory.mktemp("journal") / "device.json"
    written = Journal.new("GPU-1", "gpu", "a GPU")
    for name, (before, ours) in knobs.items():
        written = written.noting(name, before, ours)
    written.write(path)
    assert journal.read(path) == written
    journal.remove(path)
    assert journal.read(path) is None


def test_what_was_before_counts_the_first_time() -> None:
    noted = Journal.new("GPU-1", "gpu", "a GPU").noting("power_limit", (600.0,), ((600.0,), (300.0,)))
    noted = noted.noting("power_limit", (300.0,), ((300.0,), (250.0,)))
    assert noted.knobs["power_limit"].before == (600.0,)
    assert noted.knobs["power_limit"].ours == ((300.0,), (250.0,))


def test_a_journal_of_another_user_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    Journal.new("GPU-1", "gpu", "a GPU").write(path)
    path.chmod(0o664)
    with pytest.raises(UntrustedJournal, match="written by other users"):
        journal.read(path)
    path.chmod(0o644)
    elsewhere = tmp_path / "elsewhere.json"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    with pytest.raises(UntrustedJournal, match=r"device\.json"):
        journal.read(path)
    os.mkfifo(pipe := tmp_path / "pipe.json")
    with pytest.raises(UntrustedJournal, match=r"pipe\.json is no regular file"):
        journal.read(pipe)
    if os.geteuid() == 0:
        os.chown(elsewhere, 12345, -1)
        with pytest.raises(UntrustedJournal, match="belongs to another user"):
            journal.read(elsewhere)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.pop("knobs"),
        lambda data: data.update(schema_version=3),
        lambda data: data.update(knobs={"power_limit": {"before": ["a lot"], "ours": []}}),
        lambda data: data.update(knobs=[1]),
        lambda data: data.update(owner=None),
    ],
)
def test_a_damaged_journal_is_one_line(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = tmp_path / "device.json"
    Journal.new("GPU-1", "gpu", "a GPU").write(path)
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(UntrustedJournal, match="damaged or of a newer version") as error:
        journal.read(path)
    assert "\n" not in str(error.value)


def test_half_a_journal_is_none(tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    Journal.new("GPU-1", "gpu", "a GPU").write(path)
    path.write_text(path.read_text()[:40])
    with pytest.raises(UntrustedJournal):
        journal.read(path)
