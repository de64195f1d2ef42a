"""The output of a job can be read while the job runs."""

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


def run_gated(folder: Path, script: str, shown: str, **keys: object) -> str:
    """Run a script that prints and waits until its log has `shown`; returns the whole log."""
    (folder / "prints.py").write_text(script)
    gate = folder / "gate"
    process = start(job_file(folder, {"name": "prints", "script": "prints.py", "args": [str(gate)], **keys}))
    log = folder / "ecoshare-runs/latest/jobs/prints/stdout.log"
    try:
        wait_for(lambda: log.exists() and log.read_text() == shown)
    finally:
        gate.touch()
    assert process.wait(timeout=60) == 0
    return log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "isolation", ["lane", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("process", "fresh"))]
)
def test_a_line_is_in_the_log_as_soon_as_it_is_printed(tmp_path: Path, isolation: str) -> None:
    """Else the log of a long job would be empty until its buffer of 8 KiB is full."""
    printed = run_gated(tmp_path, PRINTS, "first line\n", isolation=isolation)
    assert printed == "first line\nlast line"


@pytest.mark.nightly
def test_a_job_may_ask_for_no_buffer_at_all(tmp_path: Path) -> None:
    """Setting `PYTHONUNBUFFERED` has the same effect on a forked job as on an interpreter."""
    script = PRINTS.replace('print("first line")', 'print("half", end="")')
    run_gated(tmp_path, script, "half", env={"PYTHONUNBUFFERED": "1"})
