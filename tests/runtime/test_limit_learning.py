"""Measurements of packings under power limits are kept from run to run."""

from __future__ import annotations

from pathlib import Path

from ecoshare.base.class_profile import KnownResponse, LimitMeasurement
from ecoshare.base.device import DeviceInfo
from ecoshare.core.commands import AskPower, MeasureSetting
from ecoshare.knowledge.tuning_store import TuningStore
from ecoshare.record.run_history import RunHistory
from ecoshare.runtime.planning.learning import teach_limits
from ecoshare.runtime.planning.planned_knowledge import known_responses
from ecoshare.testing.virtual_driver import VirtualDriver
from tests.core.test_power_budget import drive, gpu, job, of

GPUS = [DeviceInfo(f"cuda:{each}", "cuda", "nvidia", "a GPU", f"GPU-{each}", 1 << 34, 1) for each in range(2)]


def ran(budget_w: float, known: tuple[KnownResponse, ...] = ()) -> VirtualDriver:
    jobs = job("a", "a", 9.0), job("b", "b", 9.0)
    return drive(budget_w, (gpu(0), gpu(1)), *jobs, known_responses=known)


def taught(driver: VirtualDriver, store: TuningStore) -> None:
    history = RunHistory([entry for event, commands in driver.log for entry in (event, *commands)])
    assert not teach_limits(GPUS, history, store)


def known(store: TuningStore, *classes: str) -> dict[str, tuple[LimitMeasurement, ...]]:
    return {each.packing[0][0]: each.measurements for each in known_responses(set(classes), GPUS[0], store)[0]}


def test_a_run_asks_from_its_start_with_what_an_earlier_one_measured(tmp_path: Path) -> None:
    store = TuningStore(tmp_path)
    first = ran(400.0)
    assert not of(first, AskPower)[0].measurements and of(first, MeasureSetting)
    taught(first, store)
    kept = known_responses({"a", "b"}, GPUS[0], store)[0]
    assert {each.packing for each in kept} == {(("a",),), (("b",),)}
    second = ran(400.0, kept)
    asked = {each.packing: each.measurements for each in reversed(of(second, AskPower))}
    assert asked == {each.packing: each.measurements for each in kept}
    assert not of(second, MeasureSetting), "it is known under these limits"


def test_measurements_under_other_limits_are_added(tmp_path: Path) -> None:
    store = TuningStore(tmp_path)
    taught(ran(400.0), store)
    (before,) = known(store, "a").values()
    taught(ran(300.0), store)
    (both,) = known(store, "a").values()
    assert {each.limit_w for each in both} == {each.limit_w for each in before} | {150.0}
    assert len({each.limit_w for each in both}) == len(both)
    assert not known(store, "c"), "another class"


def test_what_is_kept_of_a_class_is_forgotten_with_it(tmp_path: Path) -> None:
    store = TuningStore(tmp_path)
    taught(ran(400.0), store)
    assert store.forget("a") == 1 and list(known(store, "a", "b")) == ["b"]
