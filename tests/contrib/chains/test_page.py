"""The program of docs/chains.md, an example, runs on files in the form of Slurm's output."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from ecoshare.contrib.chains.wait_predictor import NAMES
from tests.warm import ROOT

PAGE, PROGRAM = ROOT / "docs" / "chains.md", ROOT / "examples" / "chain_decision.py"
NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def written(folder: Path) -> None:
    """Files of a cluster with 200 past jobs, one that runs and one that waits."""
    random = Random(0)
    rows = ["JobID|Submit|Start|End|Timelimit|State|AllocTRES"]
    for number in range(200):
        submit = NOW - timedelta(hours=5 + random.uniform(0.0, 500.0))
        start = submit + timedelta(hours=random.uniform(0.0, 4.0))
        end = start + timedelta(minutes=30)
        moments = "|".join(f"{each:%Y-%m-%dT%H:%M:%S}" for each in (submit, start, end))
        rows.append(f"{number}|{moments}|01:00:00|COMPLETED|gres/gpu={random.choice((1, 8))}")
    (folder / "sacct.txt").write_text("\n".join(rows) + "\n")
    (folder / "squeue.txt").write_text(
        "901|RUNNING|2026-03-02T09:00:00|2026-03-02T11:00:00|1-00:00:00|23:00:00|100|cpu=8,gres/gpu=64\n"
        "902|PENDING|2026-03-02T10:00:00|N/A|12:00:00|12:00:00|100|cpu=8,gres/gpu=8\n"
    )


@pytest.mark.nightly
def test_the_program_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(compile(PROGRAM.read_text(), str(PROGRAM), "exec"), {})
    assert re.fullmatch(r"submit: (True|False), predicted wait: \d+\.\d h\n", capsys.readouterr().out)


def test_the_page_counts_the_features() -> None:
    assert f"over {len(NAMES)} features" in PAGE.read_text()
