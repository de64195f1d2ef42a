"""Puts each fault into a copy of the tree, and runs the tests that are to find it.

    python -m scripts.seeded_faults [WORDS]     all, or those with these words in their names

It ends with exit code 1 if a fault is not found, or if a test fails without one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from scripts.seeded_faults.faults import ALL, Fault

ROOT = Path(__file__).parents[2]

_LIMIT_S = 600.0

_OPTIONS = ("-x", "-q", "-m", "not nightly", "--hypothesis-profile", "faults", "-p", "no:cacheprovider")
"""Options of the tests: those of CI. A property that fails is not made smaller: no one reads the example."""


def copied(folder: Path) -> None:
    """Copy the files that git tracks, as they are now."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def first_failure(folder: Path, tests: Iterable[str]) -> str:
    """First test that fails, or the last line of pytest; empty if none fails."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *_OPTIONS, *tests],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end in {_LIMIT_S:g} s"
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return (lines[0].split(" - ")[0] if lines else done.stdout.splitlines()[-1]) if done.returncode else ""


def found_by(fault: Fault, folder: Path) -> str:
    """First test that fails with a fault; empty if none does."""
    path = folder / fault.file
    before = path.read_text()
    assert before.count(fault.old) == 1, f"{fault.file} has changed: {fault.name}"
    path.write_text(before.replace(fault.old, fault.new))
    try:
        return first_failure(folder, fault.tests)
    finally:
        path.write_text(before)


def main(words: list[str]) -> int:
    """Try the faults; returns the exit code."""
    if any(word.startswith("-") for word in words):
        print(__doc__)
        return 0 if words in (["-h"], ["--help"]) else 2
    chosen = [each for each in ALL if all(word in each.name for word in words)]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="ecoshare-faults-") as folder:
        copied(Path(folder))
        tests = sorted({test for each in chosen for test in each.tests})
        if fails := first_failure(Path(folder), tests):
            print(f"without a fault, too: {fails}")
            return 1
        for each in chosen:
            began_s = time.monotonic()
            by = found_by(each, Path(folder))
            missed += not by
            print(f"{time.monotonic() - began_s:5.0f} s  {each.name}: {by or 'NOT FOUND'}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} faults found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
