"""OpenMP's spinning is bounded in shared lanes, and the script does not see the means."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.running import run

# The name in one piece would give the job a fresh interpreter.
SEES = "import os, torch\nprint(os.environ.get('GOMP' + '_SPINCOUNT'), os.environ.get('ECOSHARE_ADDED'))\n"


def said(folder: Path) -> str:
    """Settings that libgomp printed when torch was loaded in the warm server."""
    lines = (folder / "supervisor.log").read_text().splitlines()
    return next(line.split("'")[1] for line in lines if "GOMP_SPINCOUNT" in line)


@pytest.mark.nightly
def test_spinning_is_bounded_before_torch_is_loaded_and_no_job_sees_how(tmp_path: Path) -> None:
    (tmp_path / "sees.py").write_text(SEES)
    jobs = [{"name": name, "script": "sees.py", "isolation": name} for name in ("process", "fresh")]
    done = run(tmp_path, *jobs, OMP_DISPLAY_ENV="VERBOSE")
    assert said(done.folder) == "5000", "with the default, threads of the last holder burn the next one's cores"
    assert b"GOMP_SPINCOUNT = '5000'" in done.log("fresh", "stderr")
    assert done.log("process") == done.log("fresh") == b"None None\n"


@pytest.mark.slow
def test_what_the_user_has_set_stays(tmp_path: Path) -> None:
    (tmp_path / "sees.py").write_text(SEES)
    done = run(tmp_path, {"name": "a", "script": "sees.py"}, OMP_DISPLAY_ENV="VERBOSE", GOMP_SPINCOUNT="123")
    assert said(done.folder) == "123"
    assert done.log("a") == b"123 None\n"
