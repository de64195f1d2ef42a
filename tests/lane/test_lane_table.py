"""The file of a lane's table."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest

from ecoshare.lane.tables.lane_table import LaneTable


def test_a_table_for_which_there_is_no_room_is_told_and_not_mapped(tmp_path: Path) -> None:
    """If it failed, the first look beyond the end of the file would kill the process (SIGBUS)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, before[1]))
    try:
        with pytest.raises(OSError, match="No space left"):
            LaneTable.create(tmp_path / "lane0")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
