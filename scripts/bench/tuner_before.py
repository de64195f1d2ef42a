"""Searches of our tuner as it was at an earlier commit, in a process of its own: for bench_tuner.py.

The commit's own `tuner` and its own judge run, unpacked from the repository into a folder that is thrown away. Both
judges read the same tables, add the same noise for a seed, and count alike.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scripts.bench.tuner_searches import Outcome
from scripts.bench.tuner_tables import Problem

COMMIT = "8aa20c794f198da153af4f6387fe0dacb82026f9"
"""The last commit before the tuner used botorch."""

_ROOT = Path(__file__).resolve().parents[2]

_JUDGE = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from scripts.bench import tuner_searches, tuner_tables
order = json.load(sys.stdin)
problems = tuner_tables.read(Path(order["folder"])) if order["folder"] else tuner_tables.invent(order["invented"])
tables = {}
for each in problems:
    tables.setdefault(each.table, {})[each.name] = each
whole = tables[order["table"]]
found = []
for name in order["names"]:
    problem = whole[name]
    prior = tuner_searches.warm(problem, list(whole.values())) if order["warm"] else None
    for seed in range(order["seeds"]):
        search = tuner_searches.ours(problem, seed, prior)
        found.append(asdict(tuner_searches.run(problem, search, seed)))
json.dump(found, sys.stdout)
"""


class Before:
    """The tuner of `COMMIT`, unpacked.

    Attributes:
        folder: Folder of that commit.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def outcomes(
        self, problems: Sequence[Problem], seeds: int, is_warm: bool, data: Path | None, invented: int
    ) -> list[Outcome]:
        """Outcomes of its searches, seed by seed for each problem.

        Args:
            problems: Problems of one table.
            seeds: Number of seeds.
            is_warm: Take the other workloads of the table as the prior.
            data: Folder of the measured tables; None for invented problems.
            invented: Number of spaces on which workloads are invented.

        Raises:
            RuntimeError: The process failed.
        """
        order = {
            "folder": None if data is None else str(data.resolve()),
            "invented": invented,
            "table": problems[0].table,
            "names": [each.name for each in problems],
            "seeds": seeds,
            "warm": is_warm,
        }
        ran = subprocess.run(
            [sys.executable, "-c", _JUDGE],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder)},
            input=json.dumps(order),
            capture_output=True,
            text=True,
        )
        if ran.returncode:
            raise RuntimeError(f"the tuner of {COMMIT[:7]} failed:\n{ran.stderr}")
        return [Outcome(**each) for each in json.loads(ran.stdout)]


@contextmanager
def before() -> Iterator[Before | None]:
    """The tuner of `COMMIT` while the context is open; None where the repository has no such commit."""
    packed = subprocess.run(
        ["git", "-C", str(_ROOT), "archive", COMMIT, "ecoshare", "tuner", "scripts", "tests"], capture_output=True
    )
    if packed.returncode:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield Before(Path(folder))
