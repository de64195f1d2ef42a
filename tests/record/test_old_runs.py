"""Run folders that earlier versions of ecoshare wrote can be read, explained and drawn.

`old-search` is a run on the fake GPU with a search for a setting; `old-sweep` was killed and resumed. Version 0.1.0
wrote both; its log has schema 2.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from ecoshare.core.events import JobArrived
from ecoshare.record import event_log
from ecoshare.record.run_data import read
from ecoshare.record.run_folder import RunFolder
from ecoshare.reporting.explanation import explain
from ecoshare.reporting.exports import export
from tests.golden.archive import run_folder

OLD = ("old-search", "old-sweep")
GAPS = {"covered": None, "faults": None}
"""Fields of the energy that tell of the time between the sessions of a resumed run: version 0.1.0 left it out."""
LATER = {"keeps_lane": None, "parks": 0, "parked_s": 0.0, "service": None, "widened": False, "by_steps": False}
"""Fields of a job that later versions have added, with the values that old runs have there."""
OF_TURNS = ("alone_s", "alone_error_s", "alone_guessed_s", "beside_s", "prepared_beside_s", "spent_s")
"""Fields of a job that later versions have added, and that an old trace tells."""
LATER_OF_DEVICE = ("energy", "failed", "idle_energy_j", "idle_power_w", "memory_bytes")
"""Fields of a device that later versions have added, and its memory, which is now that for the jobs alone."""
SETTLED = {"run", "notes", "baseline"}
"""Keys of a summary that depend on the path of the folder, and the baseline, which now follows from the turns."""


@pytest.fixture(params=OLD)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    return RunFolder(run_folder(request.param, tmp_path))


def test_the_core_makes_the_same_decisions_from_an_old_log(old: RunFolder) -> None:
    replayed = list(event_log.replay(event_log.read(old.events)))
    assert len(replayed) > 100
    assert all(logged == now[: len(logged)] for _, logged, now in replayed)


def test_an_old_run_has_the_summary_that_it_had(old: RunFolder) -> None:
    was = json.loads(old.summary.read_text())
    now = json.loads(json.dumps(read(old).summary.as_dict()))
    energy, then = now.pop("energy"), was.pop("energy")
    assert now.pop("power_budget") is None, "later versions know power budgets"
    assert now.pop("empty_power_w") is None, "later versions tell it, of GPUs"
    assert now.pop("away_s") is None, "later versions let runs take turns"
    now.pop("down_s")  # later versions tell it
    was["jobs"] = [{**job, **LATER} for job in was["jobs"]]
    for job, before in zip(now["jobs"], was["jobs"], strict=True):
        assert math.isclose(sum(job["spent_s"].values()), job["jct_s"], abs_tol=0.001)
        for name in OF_TURNS:
            del job[name]
        for name in ("slowdown", "interference"):  # the profile told them before
            value, earlier = job.pop(name), before.pop(name)
            assert earlier is None or value == pytest.approx(earlier, rel=0.001)
    was["sweeps"] = [{**sweep, "configurations": []} for sweep in was["sweeps"]]
    was["windows"] = [{**window, "device": was["devices"][0]["name"]} for window in was["windows"]]
    assert [device["energy"] for device in now["devices"]] == [energy], "the sum of one device is that of the run"
    for device in (*was["devices"], *now["devices"]):
        for name in LATER_OF_DEVICE:
            device.pop(name, None)
    assert now.keys() == was.keys() and {key for key in was if was[key] != now[key]} <= SETTLED
    assert {**energy, **GAPS} == {**then, **GAPS}


def test_the_time_in_which_an_old_run_was_cut_off_is_not_covered(tmp_path: Path) -> None:
    """Version 0.1.0 told that all of its time was covered."""
    energy = read(RunFolder(run_folder("old-sweep", tmp_path))).summary.energy
    assert energy is not None and energy.covered < 0.9
    assert energy.faults == ("the run was interrupted, and resumed later",)


@pytest.mark.slow
def test_an_old_run_is_explained_and_drawn(old: RunFolder) -> None:
    explained = explain(read(old).history)
    assert explained.differs_s is None
    assert all(story.intervals for story in explained.stories.values())
    assert len(export(old, "html")) > 20_000


def test_the_slowdown_limits_of_an_old_run_are_found(tmp_path: Path) -> None:
    """Their name was `slowdown` in the plan and in the log."""
    folder = RunFolder(run_folder("old-search", tmp_path))
    for path in (folder.plan, folder.events):
        text = path.read_text()
        assert '"slowdown": null' in text and "slowdown_limit" not in text
        path.write_text(text.replace('"slowdown": null', '"slowdown": 1.5'))
    data = read(folder)
    assert [job.slowdown_limit for job in data.summary.jobs] == [1.5, 1.5]
    assert {entry.job.slowdown_limit for entry in data.history.entries if isinstance(entry, JobArrived)} == {1.5}
