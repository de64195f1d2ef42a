"""Nearest profile for a class that has none, and the reasons against its use."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ecoshare.knowledge.profile import why_new
from ecoshare.knowledge.profile_store import ProfileStore
from tests.knowledge.classes import digest, origin, profile

ELSEWHERE = "/home/b/project/train.py"
CHANGED = {"train.py": digest("train, changed"), "model.py": digest("model")}


@pytest.mark.parametrize(
    ("near", "far"),
    [
        ({"args": ("--batch", "99")}, {"script": "/home/a/project/eval.py"}),
        ({"sources": {"train.py": digest("rewritten")}, "args": ()}, {"script": ELSEWHERE}),
        ({"script": ELSEWHERE, "sources": CHANGED}, {"script": ELSEWHERE, "sources": {"train.py": digest("?")}}),
        ({"torch": "1.0", "args": ()}, {"device_model": "Another"}),
        ({"args": ()}, {"torch": "1.0"}),
        ({"args": ("--batch=32",)}, {"args": ("--batch", "64")}),
    ],
    ids=["script", "path before a copy", "shared source", "device before torch", "torch before args", "args"],
)
def test_the_nearest_class_is_the_most_alike(tmp_path: Path, near: dict[str, Any], far: dict[str, Any]) -> None:
    """Else a new class would begin with the memory and times of another job; age decides only between equals."""
    store = ProfileStore(tmp_path)
    store.save(profile("far", "2026-12-31T00:00:00Z", **far))
    assert (found := store.nearest(origin())) is None or found.job_class == "far"
    store.save(profile("near", "2026-01-01T00:00:00Z", **near))
    assert (found := store.nearest(origin())) is not None
    assert found.job_class == "near"


def test_of_equals_the_newest_is_nearest(tmp_path: Path) -> None:
    """Else old measurements would win over new ones."""
    store = ProfileStore(tmp_path)
    for name, made_utc in (("b", "2026-03-01T00:00:00Z"), ("c", "2026-01-01T00:00:00Z"), ("a", "2026-02-01T00:00:00Z")):
        store.save(profile(name, made_utc, args=("other",)))
    assert [found.job_class for found in [store.nearest(origin())] if found] == ["b"]


@pytest.mark.parametrize(
    "changes",
    [
        {"script": ELSEWHERE, "sources": {"train.py": digest("theirs")}},
        {"script": ELSEWHERE, "sources": {"pkg/__init__.py": digest("")}},
        {"script": "/home/a/project/other.py"},
        {"given": "mine", "script": "/home/a/project/other.py"},
    ],
    ids=["a stranger's script of that name", "only an empty file alike", "another script", "a class of another name"],
)
def test_what_has_nothing_in_common_is_no_prior(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Else another project's `train.py` would decide how much memory this one gets."""
    store = ProfileStore(tmp_path)
    store.save(profile(**changes))
    mine = origin(sources={**origin().sources, "pkg/__init__.py": digest("")})
    assert store.nearest(mine) is None
    assert store.nearest(mine.model_copy(update={"given": "ours"})) is None


def test_a_given_class_is_near_whatever_its_script(tmp_path: Path) -> None:
    """Else `class:` would not join the jobs that the user joins."""
    store = ProfileStore(tmp_path)
    store.save(profile(given="resnet", script="/x/other.py", sources={}, torch="1.0"))
    assert store.nearest(origin(given="resnet")) is not None


def test_modules_of_one_name_in_two_projects_are_two(tmp_path: Path) -> None:
    """Else every `python -m train` would inherit from every other."""
    store = ProfileStore(tmp_path)
    store.save(profile(script="train", sources={"train.py": digest("theirs")}))
    assert store.nearest(origin(script="train")) is None
    assert store.nearest(origin(script="train", sources={"train.py": digest("theirs")}, args=())) is not None
    store.save(profile("installed-1", script="lib.main", sources={}))
    assert store.nearest(origin(script="lib.main", sources={}, args=())) is not None


def test_what_others_write_and_remove_is_seen(tmp_path: Path) -> None:
    """Else a long run would begin new classes from profiles of its start, or from profiles that are gone."""
    store, other = ProfileStore(tmp_path), ProfileStore(tmp_path)
    assert store.nearest(origin()) is None
    first = other.save(profile("first", args=()))
    time.sleep(0.02)  # ticks of a file system's clock take up to 10 ms
    assert store.nearest(origin()) is not None
    other.save(profile("second"))
    time.sleep(0.02)
    assert (found := store.nearest(origin())) is not None
    assert found.job_class == "second"
    (tmp_path / "second.json").unlink()
    assert store.nearest(origin()) == profile("first", args=())
    first.unlink()
    assert store.nearest(origin()) is None
    assert store.notes == []


@pytest.mark.nightly
def test_a_thousand_profiles_are_read_once(tmp_path: Path) -> None:
    """Else a plan of ten thousand jobs would read ten million files."""
    for number in range(1000):
        text = profile(f"train-{number}", args=("--seed", str(number))).model_dump_json()
        (tmp_path / f"train-{number}.json").write_text(text)
    store = ProfileStore(tmp_path)
    opened: list[object] = []
    sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" and counting else None)
    counting = True
    store.nearest(origin())
    first = len([path for path in opened if str(path).endswith(".json")])
    for number in range(100):
        assert (found := store.nearest(origin(args=("--seed", str(number), "--new")))) is not None
        assert found.job_class == f"train-{number}"
    counting = False
    assert first == 1001
    assert len([path for path in opened if str(path).endswith(".json")]) == 1001 + 100


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        ({}, ""),
        ({"script": ELSEWHERE}, ""),
        ({"sources": CHANGED}, "train.py has changed since the profile of 2026-01-01"),
        (
            {"sources": {"train.py": "0", "new.py": "1"}},
            "model.py, new.py and train.py have changed since the profile of 2026-01-01",
        ),
        (
            {"sources": {**origin().sources, **{f"{letter}.py": "0" for letter in "abcdef"}}},
            "a.py, b.py, c.py, d.py and 2 more have changed since the profile of 2026-01-01",
        ),
        ({"torch": "2.12.1"}, "torch 2.12.1, and 2.13.0 then"),
        ({"torch": "2.13.0+cpu"}, "torch 2.13.0+cpu, and 2.13.0 then"),
        ({"device_model": "B GPU"}, "another device: B GPU, and A GPU then"),
        ({"args": ("--batch", "64", "--lr", "0.1")}, "other arguments: --batch 64 (was 32)"),
        ({"args": ("--batch=64", "--amp")}, "other arguments: --batch 64 (was 32), --amp (new), without --lr 0.1"),
        (
            {"args": ("a.csv", "--batch", "32", "--lr", "-1")},
            "other arguments: argument 1 a.csv (new), --lr -1 (was 0.1)",
        ),
        ({"args": ("--batch=32", "--lr=0.1")}, "other arguments: the same, written in another way"),
        ({"args": ("--batch", "32", "--lr", "\x1b[2J")}, r"other arguments: --lr '\x1b[2J' (was 0.1)"),
        ({"args": ("--batch", "--lr", "0.1")}, "other arguments: --batch (was 32)"),
        ({"given": "mine"}, "class: mine in the job file, and none then"),
        (
            {"torch": "3", "device_model": "B", "sources": CHANGED},
            "train.py has changed since the profile of 2026-01-01; torch 3, and 2.13.0 then; "
            "another device: B, and A GPU then",
        ),
    ],
)
def test_the_difference_is_said_on_one_line(now: dict[str, Any], sentence: str) -> None:
    """Else the user would not know why a job that was measured yesterday is measured again."""
    assert why_new(origin(**now), profile()) == sentence


def test_scripts_and_arguments_of_a_given_class_are_no_difference() -> None:
    """Devices may differ there, so a message that names them would be wrong."""
    now = origin(given="mine", sources=CHANGED, args=(), torch="3")
    assert why_new(now, profile(given="mine")) == "torch 3, and 2.13.0 then"
