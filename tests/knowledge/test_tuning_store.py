"""The store of tuned results; each case says what a failure would lose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.errors import UnfitEnvironment
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.knowledge.tuning_store import (
    BestStatic,
    KnobRange,
    MeasurementRecord,
    TunedDevice,
    TuningResult,
    TuningStore,
)

MODEL = "NVIDIA H200"
PACKING = (("a-01",), ("b-02", "c-03"))


def trial(**changes: Any) -> MeasurementRecord:
    fields: dict[str, Any] = {
        "number": 1,
        "requested": {"gpu_clock": 1500.0, "power_limit": "unlocked"},
        "achieved": {"gpu_clock": 1485.0, "power_limit": None},
        "status": "measured",
        "power_w": 200.0,
        "joules": 1000.0,
        "duration_s": 5.0,
        "times": {"a": 0.1},
        "energy": 0.9,
        "interference": {"a": 1.05},
        "feasible": True,
        "best": True,
        "reasons": ("power cap",),
        "temperature_c": 61.0,
    }
    return MeasurementRecord(**{**fields, **changes})


def tuned(**changes: Any) -> TuningResult:
    fields: dict[str, Any] = {
        "objective": "energy",
        "tuning_limit": 1.1,
        "knobs": (KnobRange(name="gpu_clock", unit="MHz", count=9, lowest=300.0, highest=1980.0),),
        "packing": PACKING,
        "device": TunedDevice(model=MODEL, uuid="GPU-1"),
        "default": {"gpu_clock": "unlocked"},
        "best": {"gpu_clock": 1500.0},
        "trials": (trial(),),
        "saved_against_default": 0.2,
        "best_static": BestStatic(setting={"gpu_clock": 1600.0}, energy=None, source="a sweep"),
        "violations": 0,
        "search_energy_j": 1000.0,
        "made_utc": "2026-01-01T00:00:00+00:00",
    }
    return TuningResult(**{**fields, **changes})


def test_what_was_saved_is_found_whatever_the_order_of_lanes_and_jobs(tmp_path: Path) -> None:
    store = TuningStore(tmp_path)
    path = store.save(tuned(packing=(("c-03", "b-02"), ("a-01",))))
    assert path.parent == tmp_path / "tuned" and path.stat().st_mode & 0o077 == 0
    for packing in (PACKING, PACKING[::-1], (("c-03", "b-02"), ("a-01",))):
        assert TuningStore(tmp_path).find(packing, MODEL, "energy", 1.1) == tuned()
    assert path.name.startswith("a-01_b-02+c-03.NVIDIA-H200."), "the name does not tell the classes of the file"
    assert store.notes == []


def test_only_the_packing_device_objective_and_limit_asked_for_is_found(tmp_path: Path) -> None:
    store = TuningStore(tmp_path)
    assert store.find(PACKING, MODEL, "energy", 1.1) is None
    store.save(tuned())
    assert store.find(PACKING, MODEL, "edp", 1.1) is None
    assert store.find(PACKING, MODEL, "energy", 1.2) is None
    assert store.find(PACKING, "NVIDIA H100", "energy", 1.1) is None
    assert store.find((("a-01", "b-02"), ("c-03",)), MODEL, "energy", 1.1) is None, "lanes make another packing"
    assert store.find((("a-01",), ("b-02+c-03",)), MODEL, "energy", 1.1) is None


def test_a_newer_result_replaces_its_own_kind_alone(tmp_path: Path) -> None:
    store = TuningStore(tmp_path)
    first = store.save(tuned())
    assert store.save(tuned(objective="edp", best=None, saved_against_default=None)) == first, "one file a packing"
    store.save(tuned(best={"gpu_clock": 1400.0}))
    found = store.find(PACKING, MODEL, "energy", 1.1)
    assert found is not None and found.best == {"gpu_clock": 1400.0}
    nothing_feasible = store.find(PACKING, MODEL, "edp", 1.1)
    assert nothing_feasible is not None and nothing_feasible.best is None
    assert len(store.results(PACKING, MODEL)) == 2
    assert [path.name for path in store.folder.iterdir()] == [first.name], "something is left beside it"


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"schema_version": 1}', b'{"schema_version": 1, "results": [{"objective": 1}]}'],
)
def test_a_corrupt_file_is_set_aside_and_told(tmp_path: Path, content: bytes) -> None:
    store = TuningStore(tmp_path)
    path = store.save(tuned())
    path.write_bytes(content)
    assert store.find(PACKING, MODEL, "energy", 1.1) is None
    (note,) = store.notes
    assert "is no result of tuning" in note and "renamed" in note
    assert path.with_name(path.name + ".corrupt").read_bytes() == content
    store.save(tuned())
    assert store.find(PACKING, MODEL, "energy", 1.1) == tuned()


def test_a_file_of_another_packing_is_not_believed(tmp_path: Path) -> None:
    store = TuningStore(tmp_path)
    other = store.save(tuned(packing=(("z",),)))
    other.rename(store.path(PACKING, MODEL))
    assert store.find(PACKING, MODEL, "energy", 1.1) is None and "another packing" in store.notes[0]


def test_a_newer_file_is_neither_used_nor_replaced(tmp_path: Path) -> None:
    store = TuningStore(tmp_path)
    path = store.save(tuned())
    newer = json.dumps({"schema_version": 2, "something": "else"})
    path.write_text(newer)
    assert store.find(PACKING, MODEL, "energy", 1.1) is None
    assert store.save(tuned()) == path and path.read_text() == newer
    (note,) = store.notes
    assert "newer version" in note


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "tuned").write_text("a file")
    store = TuningStore(tmp_path)
    with pytest.raises(UnfitEnvironment, match="cannot write"):
        store.save(tuned())
    assert store.find(PACKING, MODEL, "energy", 1.1) is None and "cannot be used" in store.notes[0]


def test_the_store_of_profiles_does_not_mind(tmp_path: Path) -> None:
    TuningStore(tmp_path).save(tuned())
    profiles = ProfileStore(tmp_path)
    assert profiles.find("a-01") is None and profiles.notes == []


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@given(st.lists(st.lists(names, min_size=1, max_size=3), min_size=1, max_size=3), names)
def test_any_names_make_one_file_in_the_folder(
    tmp_path_factory: pytest.TempPathFactory, packing: list[list[str]], model: str
) -> None:
    store = TuningStore(tmp_path_factory.getbasetemp() / "names")
    lanes = tuple(tuple(lane) for lane in packing)
    saved = tuned(packing=lanes, device=TunedDevice(model=model, uuid=None))
    path = store.save(saved)
    assert path.parent == store.folder and len(path.name) < 200 and not path.name.startswith(".")
    assert store.find(lanes, model, "energy", 1.1) == saved


@pytest.mark.parametrize(
    "changes",
    [
        {"number": 0},
        {"status": "odd"},
        {"power_w": -1.0},
        {"energy": float("nan")},
        {"times": {"a": 0.0}},
        {"colour": "red"},
    ],
)
def test_records_that_cannot_be_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        trial(**changes)
