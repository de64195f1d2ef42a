"""Gangs on GPUs that are linked: four fake GPUs, NVLinks between 0 and 2, and between 1 and 3."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import pynvml
import pytest

from ecoshare.base.device import ACROSS_NODES, over_nvlinks
from ecoshare.core.events import RunOpened
from ecoshare.record import event_log
from tests.driver import FakeDriver, presets
from tests.runtime.running import job_file, words
from tests.warm import ecoshare

SCRIPT = """
import os
print(os.environ["CUDA_VISIBLE_DEVICES"], os.environ.get("RANK", ""))
"""


@dataclass(frozen=True)
class OnFour:
    """A run on four GPUs, and what belongs to it."""

    driver: FakeDriver
    environment: dict[str, str]
    folder: Path
    summary: dict[str, object]

    def devices(self) -> dict[str, list[str]]:
        jobs = self.summary["jobs"]
        assert isinstance(jobs, list)
        return {job["name"]: job["devices"] for job in jobs}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnFour]:
    """Two gangs one after the other: one process on two GPUs, and two ranks."""
    folder = tmp_path_factory.mktemp("linked")
    driver = FakeDriver(folder, [presets.V100] * 4)
    for one, other in combinations(range(4), 2):
        linked = other - one == 2
        level = pynvml.NVML_TOPOLOGY_NODE if linked else pynvml.NVML_TOPOLOGY_SYSTEM
        driver.connect(one, other, nvlinks=4 if linked else 0, level=level)
    (folder / "prints.py").write_text(SCRIPT)
    jobs = [
        {"name": "process", "script": "prints.py", "gpus": 2},
        {"name": "ranks", "script": "prints.py", "gpus": 2, "launch": "ranks"},
    ]
    environment = {**os.environ, **driver.environment}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    line = [word for word in words(job_file(folder, *jobs), "--control", "off") if word not in ("--device", "cpu")]
    ended = ecoshare(*line, environment=environment)
    assert ended.returncode == 0, ended.stderr
    yield OnFour(driver, environment, folder / "ecoshare-runs" / "latest", json.loads(ended.stdout))


@pytest.mark.slow
def test_gangs_are_placed_on_linked_gpus(done: OnFour) -> None:
    """The first two free GPUs are not linked."""
    assert sorted(done.devices().values()) in ([["cuda:0", "cuda:2"]] * 2, [["cuda:0", "cuda:2"], ["cuda:1", "cuda:3"]])
    told = (done.folder / "jobs" / "process" / "stdout.log").read_text().split()[0]
    places = [int(name.removeprefix("cuda:")) for name in done.devices()["process"]]
    assert told == ",".join(done.driver.gpu(place).uuid for place in places), "the job sees these GPUs"


@pytest.mark.slow
def test_the_log_has_the_links_and_replays_to_the_same_commands(done: OnFour) -> None:
    entries = list(event_log.read(done.folder / "events.jsonl"))
    opened = next(entry for entry in entries if isinstance(entry, RunOpened))
    assert {each.name: dict(each.links) for each in opened.devices}["cuda:1"] == {
        "cuda:0": ACROSS_NODES,
        "cuda:2": ACROSS_NODES,
        "cuda:3": over_nvlinks(4),
    }
    assert all(logged == now for _, logged, now in event_log.replay(entries))


@pytest.mark.slow
def test_explain_says_how_the_devices_of_a_gang_are_linked(done: OnFour) -> None:
    first, second = done.devices()["ranks"]
    told = ecoshare("explain", str(done.folder), "ranks", environment=done.environment)
    assert f"starts on {first} and {second} (4 NVLinks)" in told.stdout, told.stdout + told.stderr


@pytest.mark.slow
def test_the_links_of_this_machine_are_shown(done: OnFour) -> None:
    told = ecoshare("devices", environment=done.environment).stdout
    lines = told[told.index("\nlinks\n") :].split("\n")[2:5]
    assert lines == [
        "  cuda:0 and cuda:2: 4 NVLinks",
        "  cuda:1 and cuda:3: 4 NVLinks",
        "  all other pairs: across NUMA nodes",
    ]
    first = json.loads(ecoshare("devices", "--json", environment=done.environment).stdout)[0]
    assert first["links"] == {"cuda:1": ACROSS_NODES, "cuda:2": over_nvlinks(4), "cuda:3": ACROSS_NODES}


@pytest.mark.slow
def test_a_log_without_links_is_still_read(done: OnFour) -> None:
    """Logs of earlier versions have devices without the field."""
    lines = (done.folder / "events.jsonl").read_text().splitlines(keepends=True)
    opened = json.loads(lines[0])
    for device in opened["devices"]:
        del device["links"]
    old = done.folder.parent / "old.jsonl"
    old.write_text(json.dumps(opened) + "\n" + "".join(lines[1:]))
    entry = next(event_log.read(old))
    assert isinstance(entry, RunOpened) and [each.links for each in entry.devices] == [()] * 4
