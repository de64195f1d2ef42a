"""Knowledge of earlier runs in the plan of jobs that share devices with other jobs of a queue."""

from __future__ import annotations

from pathlib import Path

from ecoshare.devices import registry
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.knowledge.tuning_store import TunedDevice, TuningStore
from ecoshare.runtime.planning import planned_knowledge
from tests.knowledge.test_tuning_store import tuned


def test_settings_of_packings_with_other_jobs_of_the_queue_are_known_and_told_by_their_classes(tmp_path: Path) -> None:
    """If it failed, a queue would refuse jobs beside a class for which a setting is known."""
    cpu, store = registry.find("cpu"), ProfileStore(tmp_path)
    kept = TuningStore(store.folder)
    for packing in ((("mine", "other"),), (("other",),)):
        kept.save(tuned(packing=packing, device=TunedDevice(model=cpu.described, uuid=cpu.uuid)))
    found, notes = planned_knowledge.known_settings({"mine", "other"}, cpu, "energy", 2, {"mine": "train"}, store)
    assert {each.packing for each in found} == {(("mine", "other"),), (("other",),)}
    [note] = notes
    assert note.startswith("while just train + other run, clocks and power are set")
