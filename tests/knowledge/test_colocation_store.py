"""Measurements of neighbours are kept from run to run."""

from __future__ import annotations

import json
from pathlib import Path

from ecoshare.knowledge.colocation_store import ColocationStore
from ecoshare.knowledge.profiles_folder import BESIDE

A, B, C = "a-000000000000", "b-000000000000", "c-000000000000"


def test_what_is_kept_is_found_again_the_oldest_first(tmp_path: Path) -> None:
    store = ColocationStore(tmp_path)
    store.save((B, A), (0.5, 0.9), 120.0)
    store.save((A, A), (0.4, 0.6), None)
    store.save((A, B, C), (0.3, 0.3, 0.3), 150.0)
    (pair,) = (each for each in store.of({A, B}) if B in each.classes)
    assert (pair.classes, pair.speeds, pair.power_w) == ((A, B), (0.9, 0.5), 120.0)
    assert {each.classes for each in store.of({A, B})} == {(A, B), (A, A)}
    assert len(store.of({A, B, C})) == 3
    assert not store.of({C}) and not ColocationStore(tmp_path / "nowhere").of({A})


def test_the_newest_of_a_group_counts(tmp_path: Path) -> None:
    store = ColocationStore(tmp_path)
    for speed in (0.2, 0.7):
        store.save((A, B), (speed, speed), None)
    (only,) = store.of({A, B})
    assert only.speeds == (0.7, 0.7)
    assert len(list((tmp_path / BESIDE).iterdir())) == 1


def test_a_damaged_file_is_set_aside_and_a_newer_one_is_left_alone(tmp_path: Path) -> None:
    store = ColocationStore(tmp_path)
    store.save((A, B), (0.5, 0.5), None)
    (path,) = (tmp_path / BESIDE).iterdir()
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "speeds": [0.5]}))
    assert not store.of({A, B}) and "not a speed for each" in store.notes[0]
    assert path.with_name(path.name + ".corrupt").exists()
    path.write_text(json.dumps({**content, "schema_version": 2, "new": 1}))
    newer = ColocationStore(tmp_path)
    assert not newer.of({A, B}) and "newer version" in newer.notes[0]
    newer.save((A, B), (0.9, 0.9), None)
    assert json.loads(path.read_text())["schema_version"] == 2


def test_many_classes_have_a_name_that_fits_a_folder(tmp_path: Path) -> None:
    store = ColocationStore(tmp_path)
    names = tuple(f"a-class-with-a-long-name-{number:012d}" for number in range(6))
    store.save(names, (0.5,) * 6, None)
    assert [each.classes for each in store.of(set(names))] == [names]
