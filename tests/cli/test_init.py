"""`ecoshare init` in an empty folder, in one with scripts, and over existing files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.test_cli import ecoshare

TRAINS = "import torch\nfor _ in range(3):\n    loss.backward()\n"


def planned(folder: Path, file: str = "jobs.yaml") -> dict[str, str]:
    """Jobs of the plan, each with the name of its script."""
    done = ecoshare("run", file, "--dry-run", "--device", "cpu", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return {job["name"]: Path(job["script"]).name for job in json.loads(done.stdout)["jobs"]}


def test_an_empty_folder_gets_no_file_and_a_hint(tmp_path: Path) -> None:
    done = ecoshare("init", cwd=tmp_path)
    assert done.returncode == 2 and "no training script in this folder" in done.stderr
    assert "ecoshare init --example" in done.stderr and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_example_can_be_run(tmp_path: Path) -> None:
    """If it failed, the first command that a new user is told to type would fail."""
    assert ecoshare("init", "--example", cwd=tmp_path).returncode == 0
    assert planned(tmp_path) == {
        "classify_images": "classify_images.py",
        "forecast_series": "forecast_series.py",
    }
    for script in tmp_path.glob("*.py"):
        text = script.read_text()
        assert "ecoshare" not in text and "import torch" in text
    short = ecoshare(
        *("run", "classify_images.py", "--device", "cpu", "--no-profiles", "--no-report", "--", "--epochs", "1"),
        cwd=tmp_path,
    )
    assert short.returncode == 0, short.stderr
    assert "epoch 1: loss" in (tmp_path / "ecoshare-runs/latest/jobs/classify_images/stdout.log").read_text()


def test_scripts_that_train_are_named(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    for name in ("train.py", "project/train.py"):
        (tmp_path / name).write_text(TRAINS)
    (tmp_path / "plot.py").write_text("print('no training')\n")
    done = ecoshare("init", "mine.yaml", cwd=tmp_path)
    assert done.returncode == 0 and "train.py, project/train.py" in done.stderr
    assert planned(tmp_path, "mine.yaml") == {"train": "train.py", "train-2": "train.py"}


def test_a_folder_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/train.py").write_text(TRAINS)
    assert ecoshare("init", "project", cwd=tmp_path).returncode == 0
    assert planned(tmp_path, "project/jobs.yaml") == {"train": "train.py"}


@pytest.mark.parametrize("there", ["jobs.yaml", "forecast_series.py"])
def test_nothing_is_replaced_unless_it_is_said(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")
    done = ecoshare("init", "--example", cwd=tmp_path)
    assert done.returncode == 2 and f"{there} exists" in done.stderr and "--force" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == [there]
    assert ecoshare("init", "--example", "--force", cwd=tmp_path).returncode == 0
    assert len(list(tmp_path.iterdir())) == 3 and (tmp_path / there).read_text() != "mine"
