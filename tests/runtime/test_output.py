"""What a job prints can be read while the job runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.running import job_file, start
from tests.warm import wait_for

PRINTS = """
import pathlib, sys, time
print("first line")
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
print("last line", end="")
"""


@pytest.mark.parametrize("isolation", ["process", "fresh", "lane"])
def test_a_line_is_in_the_log_as_soon_as_it_is_printed(tmp_path: Path, isolation: str) -> None:
    """Else the log of a job that runs for hours is empty until its buffer of 8 KiB is full."""
    (tmp_path / "prints.py").write_text(PRINTS)
    gate = tmp_path / "gate"
    job = {"name": "prints", "script": "prints.py", "args": [str(gate)], "isolation": isolation}
    process = start(job_file(tmp_path, job))
    log = tmp_path / "runs/latest/jobs/prints/stdout.log"
    try:
        wait_for(lambda: log.exists() and log.read_text() == "first line\n", 60.0)
    finally:
        gate.touch()
    process.communicate(timeout=60)
    assert process.returncode == 0 and log.read_text() == "first line\nlast line"


def test_a_job_may_ask_for_no_buffer_at_all(tmp_path: Path) -> None:
    """`PYTHONUNBUFFERED` does for a forked job what it does for an interpreter."""
    (tmp_path / "prints.py").write_text(PRINTS.replace('print("first line")', 'print("half", end="")'))
    gate = tmp_path / "gate"
    job = {"name": "prints", "script": "prints.py", "args": [str(gate)], "env": {"PYTHONUNBUFFERED": "1"}}
    process = start(job_file(tmp_path, job))
    log = tmp_path / "runs/latest/jobs/prints/stdout.log"
    try:
        wait_for(lambda: log.exists() and log.read_text() == "half", 60.0)
    finally:
        gate.touch()
    assert process.wait(timeout=60) == 0
