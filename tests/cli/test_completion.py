"""Completions that shells get, and answers to misspelt words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ecoshare.cli import named_runs
from ecoshare.simulation.traces.generate import ALL_KINDS
from tests.knowledge.classes import NAME
from tests.test_cli import ecoshare
from tests.warm import ROOT, Started

GOOD = "version: 1\njobs:\n- {name: a, script: a.py}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the names of two runs and of a profile."""
    folder = tmp_path_factory.mktemp("complete")
    for run in ("20260101-000000-jobs", "20260102-000000-jobs", "no-run"):
        (folder / "ecoshare-runs" / run).mkdir(parents=True)
        if run != "no-run":
            (folder / "ecoshare-runs" / run / "plan.json").write_text(
                '{"jobs": [{"name": "first"}, {"name": "second"}]}'
            )
    (folder / "profiles").mkdir()
    (folder / "profiles" / f"{NAME}.json").touch()
    (folder / "a.py").touch()
    (folder / "jobs.yaml").write_text(GOOD)
    return folder


def completed(shell: str, line: str, folder: Path) -> list[str]:
    """Completions that a shell gets for a line with the cursor at its end."""
    words = line.split(" ")
    asked = {
        "_ECOSHARE_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "ECOSHARE_PROFILES": str(folder / "profiles"),
    }
    done = Started(cwd=folder, environment={**os.environ, **asked}).done()
    assert done.stderr == ""
    return done.stdout.removeprefix("_arguments '*: :((").rstrip(")'\n").replace('"', "").split("\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_names(shell: str, folder: Path) -> None:
    assert completed(shell, "ecoshare run --policy s", folder) == ["shockwave", "smallest", "srsf", "srtf"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("ecoshare profiles s", ["show"]),
        ("ecoshare simulate --policy fifo,sr", ["fifo,srsf", "fifo,srtf"]),
        ("ecoshare run --objective m", ["makespan"]),
        ("ecoshare run --control k", ["known"]),
        ("ecoshare run --device cu", ["cuda", "cuda:0"]),
        ("ecoshare simulate --generate bohb", ["bohb", "bohb-parallel"]),
        ("ecoshare export ", ["ecoshare-runs/20260102-000000-jobs", "ecoshare-runs/20260101-000000-jobs"]),
        ("ecoshare run --resume ecoshare-runs/20260101", ["ecoshare-runs/20260101-000000-jobs"]),
        ("ecoshare explain ecoshare-runs/20260101-000000-jobs ", ["first", "second"]),
        ("ecoshare logs --runs ecoshare-runs 20260102-000000-jobs f", ["first"]),
        ("ecoshare explain 202", ["20260102-000000-jobs", "20260101-000000-jobs"]),
        ("ecoshare export ecoshare-runs/latest --format p", ["parquet", "perfetto", "prometheus"]),
        ("ecoshare profiles rm ", [NAME]),
        ("ecoshare runs rm ", ["ecoshare-runs/20260102-000000-jobs", "ecoshare-runs/20260101-000000-jobs"]),
        ("ecoshare runs rm --runs ecoshare-runs 20260101", ["20260101-000000-jobs"]),
        ("ecoshare profile --compare tr", [NAME]),
        ("ecoshare run a", [""]),  # the shell itself completes files
    ],
)
def test_values_are_completed(line: str, names: list[str], folder: Path) -> None:
    assert completed("bash", line, folder) == names


@pytest.mark.nightly
@pytest.mark.cold
def test_bash_completes_a_command(folder: Path, tmp_path: Path) -> None:
    """The printed script works in a real bash with the real command."""
    command = tmp_path / "ecoshare"
    program = "from ecoshare.cli.app import app; app(prog_name='ecoshare')"
    command.write_text(f"#!/bin/sh\nPYTHONPATH='{ROOT}' exec '{sys.executable}' -c \"{program}\" \"$@\"\n")
    command.chmod(0o755)
    line = """
        source <(_ECOSHARE_COMPLETE=source_bash ecoshare)
        COMP_WORDS=(ecoshare run --policy sr) COMP_CWORD=3
        _ecoshare_completion ecoshare
        echo "${COMPREPLY[@]}"
    """
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", line],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PATH": path},
        check=False,
    )
    assert done.stdout == "srsf srtf\n", done.stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("run", "jobs.yaml", "--policy", "strf"), "srtf"),
        (("run", "jobs.yaml", "--objective", "energi"), "energy"),
        (("run", "jobs.yaml", "--control", "of"), "off"),
        (("run", "jobs.yaml", "--device", "gpu:0"), "cuda"),
        (("run", "jobs.yaml", "--device", "cud"), "cuda"),
        (("simulate", "--generate", "phily"), "philly"),
        (("simulate", "--generate", "philly", "--policy", "fifo,tiresia"), "tiresias"),
        (("export", "ecoshare-runs/20260101-000000-jobs", "--format", "jsn"), "json"),
    ],
)
def test_a_typing_mistake_gets_a_suggestion(words: tuple[str, ...], meant: str, folder: Path) -> None:
    done = ecoshare(*words, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"hint: did you mean '{meant}'?\n" in done.stderr and "expected " in done.stderr


@pytest.mark.slow
def test_help_shows_no_type_for_flags_and_all_kinds_of_traces(tmp_path: Path) -> None:
    for words in (("run",), ("profiles",), ("profiles", "list"), ()):
        assert "bool" not in ecoshare(*words, "--help", cwd=tmp_path).stdout
    shown = ecoshare("simulate", "--help", cwd=tmp_path).stdout
    for kind in ALL_KINDS:
        assert kind in shown, kind


@pytest.mark.slow
def test_an_ordinary_command_loads_nothing_to_complete() -> None:
    program = "import sys, ecoshare.cli.app; print(*(name for name in sys.modules if name.startswith('ecoshare')))"
    seen = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split()
    heavy = (
        "ecoshare.core.policies",
        "ecoshare.simulation",
        "ecoshare.reporting",
        "ecoshare.knowledge",
        "ecoshare.runtime",
    )
    assert not [name for name in seen if name.startswith(heavy)]


@pytest.mark.parametrize(
    "name", ["$(touch owned)", "a; b", "`b`", "a b", "a\nb", "a'b", '"', "*", "~x", "a&b", "\x1b[2J", 7]
)
def test_a_name_that_means_something_to_a_shell_is_not_completed(
    name: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs of a run folder of someone else may have any name."""
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "ecoshare-runs" / "latest"
    run.mkdir(parents=True)
    (run / "plan.json").write_text(json.dumps({"jobs": [{"name": name}, {"name": "good-1.x"}]}))
    found = named_runs.runs_and_jobs(SimpleNamespace(params={}), "")
    assert "good-1.x" in found and name not in found
