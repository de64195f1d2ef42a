"""`ecoshare profiles` on profiles that were built by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ecoshare.knowledge.colocation_store import ColocationStore
from ecoshare.knowledge.iteration_store import IterationCount, IterationStore, JobArguments
from ecoshare.knowledge.profile import Profile
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.knowledge.tuning_store import BestStatic, TunedDevice, TuningResult, TuningStore
from ecoshare.reporting.figures import printable
from tests.knowledge.classes import origin, profile
from tests.test_cli import ecoshare

TRAIN, OTHER_TRAIN, EVALUATE = "train-0123456789ab", "train-ba9876543210", "evaluate-001122334455"
BRIEF = "brief-665544332211"
"""Class without a profile: its jobs are too short."""


def tuned(*classes: str) -> TuningResult:
    return TuningResult(
        objective="energy",
        tuning_limit=1.1,
        knobs=(),
        packing=tuple((name,) for name in classes),
        device=TunedDevice(model="A GPU", uuid=None),
        default={"gpu_clock": 1980.0},
        best={"gpu_clock": 1200.0},
        trials=(),
        saved_against_default=0.1,
        best_static=BestStatic(setting={}, energy=None, source=""),
        violations=0,
        search_energy_j=None,
        made_utc="2026-01-01T00:00:00Z",
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder with three profiles of two scripts."""
    store = ProfileStore(tmp_path / "profiles")
    store.save(profile(TRAIN, "2026-01-01T10:00:00Z", args=("--name", "two words")))
    store.save(profile(OTHER_TRAIN, "2026-01-02T10:00:00Z"))
    store.save(profile(EVALUATE, "2026-01-03T10:00:00Z", script="/home/a/project/evaluate.py"))
    (tmp_path / "profiles" / f"{TRAIN}.svg").touch()
    beside, settings = ColocationStore(store.folder), TuningStore(store.folder)
    beside.save((TRAIN, EVALUATE), (0.9, 0.8), None)
    beside.save((OTHER_TRAIN, EVALUATE), (0.9, 0.8), None)
    settings.save(tuned(TRAIN))
    settings.save(tuned(OTHER_TRAIN, EVALUATE))
    return tmp_path


def profiles(folder: Path, *words: str) -> tuple[int, str, str]:
    done = ecoshare("profiles", *words, "--profiles", "profiles", cwd=folder)
    return done.returncode, done.stdout, done.stderr


def files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "profiles").rglob("*.*")}


def test_a_list_has_a_line_for_each_the_newest_first(folder: Path) -> None:
    code, stdout, stderr = profiles(folder, "list")
    lines = stdout.splitlines()
    assert (code, stderr) == (0, "") and lines[-1] == "folder: profiles"
    assert [line.split()[0] for line in lines[1:4]] == [EVALUATE, OTHER_TRAIN, TRAIN]
    assert re.search(r"train\.py +--name 'two words' +2026-01-01 10:00 +cuda A GPU +± 10 % +yes", lines[3])
    listed = json.loads(profiles(folder, "list", "--json")[1])
    assert [each["class"] for each in listed] == [EVALUATE, OTHER_TRAIN, TRAIN]
    assert listed[2]["args"] == ["--name", "two words"] and Path(folder, listed[2]["file"]).exists()


def test_a_list_of_nothing_says_where_it_looked(tmp_path: Path) -> None:
    code, stdout, stderr = profiles(tmp_path, "list")
    assert (code, stdout) == (0, "") and "no profiles in profiles" in stderr
    assert profiles(tmp_path, "list", "--json")[1] == "[]\n"


@pytest.mark.slow
def test_show_prints_what_the_saved_file_prints(folder: Path) -> None:
    code, stdout, _ = profiles(folder, "show", TRAIN)
    assert code == 0 and stdout == ecoshare("profile", f"profiles/{TRAIN}.json", cwd=folder).stdout
    assert profiles(folder, "show", "evaluate.py")[1].startswith(f"profile of {EVALUATE}")
    assert Profile.model_validate_json(profiles(folder, "show", TRAIN, "--json")[1]).job_class == TRAIN


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "trian-0123456789ab"), f"did you mean '{TRAIN}'?"),
        (("show", "evaluat.py"), "did you mean 'evaluate.py'?"),
        (("show", "train.py"), f"{OTHER_TRAIN}, {TRAIN}"),
        (("rm", EVALUATE, "zzz"), "profiles list"),
        (("rm",), "CLASS|SCRIPT is missing"),
    ],
)
def test_a_wrong_name_gets_a_suggestion_and_removes_nothing(folder: Path, words: tuple[str, ...], said: str) -> None:
    before = files(folder)
    code, stdout, stderr = profiles(folder, *words)
    assert (code, stdout) == (2, "") and said in printable(stderr)
    assert files(folder) == before


def test_a_class_goes_with_all_that_is_relative_to_it(folder: Path) -> None:
    code, stdout, _ = profiles(folder, "rm", TRAIN)
    assert code == 0
    assert stdout == (
        f"removed {TRAIN} of /home/a/project/train.py, with 1 measurement beside others and 1 tuned setting\n"
    )
    left = files(folder)
    assert not [name for name in left if TRAIN in name] and len(left) == 4, left


def test_a_script_names_all_of_its_classes(folder: Path) -> None:
    code, stdout, _ = profiles(folder, "rm", "train.py", OTHER_TRAIN)
    assert code == 0 and len(stdout.splitlines()) == 2
    assert files(folder) == {f"{EVALUATE}.json"}


def counts(folder: Path, job_class: str, **iterations: int) -> None:
    """Store iterations of completed jobs, each with its name as the argument."""
    own = origin(script="/home/a/project/brief.py", args=())
    new = [
        (JobArguments.of(own.model_copy(update={"args": (job,)}), ""), IterationCount(iterations=n, run="r", job=job))
        for job, n in iterations.items()
    ]
    IterationStore(folder / "profiles").add(job_class, own, new)


@pytest.mark.slow
def test_iterations_are_listed_shown_and_removed_with_their_class(folder: Path) -> None:
    counts(folder, TRAIN, a=1200)
    counts(folder, BRIEF, b=30, c=3000)
    stdout = profiles(folder, "list")[1]
    assert re.search(rf"{TRAIN} .* yes +1,200\n", stdout) and re.search(rf"{OTHER_TRAIN} .* yes +-\n", stdout)
    assert re.search(rf"{BRIEF} +brief\.py .* no profile +30 to 3,000\n", stdout)
    listed = {each["class"]: each for each in json.loads(profiles(folder, "list", "--json")[1])}
    assert listed[BRIEF]["settled"] is None and [each["most"] for each in listed[BRIEF]["iterations"]] == [30, 3000]
    assert listed[TRAIN]["iterations"][0]["args"] == ["a"] and listed[OTHER_TRAIN]["iterations"] == []
    shown = profiles(folder, "show", TRAIN)[1]
    assert re.search(r"iterations of completed jobs\n +brief\.py a +1,200 +as in 1 completed job\n$", shown)
    assert re.search(r"brief\.py c +3,000 .*\n +brief\.py b +30 ", profiles(folder, "show", "brief.py")[1])
    code, _, stderr = profiles(folder, "show", BRIEF, "--json")
    assert code == 2 and "no profile" in stderr
    assert (
        profiles(folder, "rm", "brief")[1] == f"removed {BRIEF} of /home/a/project/brief.py, with 2 iteration counts\n"
    )
    assert profiles(folder, "rm", TRAIN)[1].endswith(
        "with 1 measurement beside others, 1 tuned setting and 1 iteration count\n"
    )
    assert not list((folder / "profiles" / "iterations").iterdir())
