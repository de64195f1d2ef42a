"""Settings of a service on the fake GPU: they are searched by its requests, and so is its largest batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ecoshare.base.measurement import BATCH, MeasurementStatus
from ecoshare.base.service import REQUESTS
from ecoshare.core.commands import ApplySetting, AwaitRequests
from ecoshare.core.events import Done, Refused, SettingAdvised, SettingMeasured, TargetMissed
from ecoshare.lane.serving.request_intervals import RequestInterval, read
from tests.driver import presets
from tests.driver.training import CONTEXT_BYTES, ROOT, WAITS
from tests.runtime.machine import BEFORE, MARKS, Machine
from tests.runtime.test_loop import applied, some
from tests.warm import wait_for

pytestmark = MARKS

CLIFF, SLOW = 1.07, 5
"""Time of a batch at a setting / time at the default setting, from which on batches take so many times as long: the
search cannot foresee it, and the service is overloaded then."""

FEW_SETTINGS = replace(presets.H200, clocks_mhz={3201: (1980, 1890, 1800)}, limits_w=(590, 700, 700))
"""Device with one clock over the cliff, and few settings in all."""

SERVES = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import ecoshare
import torch
from tests.driver.cuda_standin import StandIn

gpu = StandIn(1.0, 0.05, {CONTEXT_BYTES}, True)
gpu.allocate(1 << 20)

def handler(requests):
    slow = {SLOW} if gpu.stretch() > {CLIFF} else 1
    gpu.work(slow * (0.004 + 0.001 * len(requests)))
    torch.cuda.synchronize()
    return requests

ecoshare.serve(handler).run()
"""


@pytest.mark.nightly
def test_the_setting_and_the_batch_of_a_service_are_searched_by_its_requests(tmp_path: Path) -> None:
    machine = Machine(tmp_path, FEW_SETTINGS)
    (tmp_path / "serves.py").write_text(SERVES)
    service = {"p99": "200 ms", "batch": [1, 2, 4], "requests": {"rate": 120}}
    jobs: list[dict[str, Any]] = [{"name": "serves", "script": "serves.py", "service": service}]
    jobs.append(WAITS.job(100_000, "--responds", "--until", "over"))
    (tmp_path / "jobs.yaml").write_text(yaml.safe_dump({"version": 1, "jobs": jobs}))
    started = machine.start("run", "jobs.yaml", "--objective", "energy", "--lanes", "1", "--no-report", "--json")
    log = tmp_path / "ecoshare-runs/latest/events.jsonl"

    def best() -> SettingAdvised | None:
        return next((each for each in some(machine.entries(), SettingAdvised) if each.over), None)

    try:
        wait_for(lambda: log.exists() and best() is not None, 200)
        over = best()
        assert over is not None
        wait_for(lambda: applied(machine.entries())[-1] == over.setting)
        entries = machine.entries()
    finally:
        (tmp_path / "over").touch()  # else the run would go on for ever
    done = started.done()
    assert done.returncode == 0, done.stderr
    assert not some(entries, TargetMissed), "no tried setting was in force for long"
    measured = [each.measurement for each in some(entries, SettingMeasured)]
    assert not measured[0].setting and len(measured) > 1
    _overloads_are_left_at_once(entries)
    for each in measured:
        if each.status is MeasurementStatus.MEASURED:
            assert each.services["serves"].arrived > 100 and each.times_s.keys() == {"waits"}
            assert each.services["serves"].rate_per_s == pytest.approx(120.0, rel=0.2)
    assert machine.driver.gpu(0).settings() == BEFORE
    _batches_were_limited(machine.entries(), read(machine.folder / "ecoshare-runs/latest/jobs/serves" / REQUESTS))


def _overloads_are_left_at_once(entries: list[Any]) -> None:
    """The device goes back to its default, and what is measured then has none of the queue."""
    begun = {each.id: each for each in entries if isinstance(each, ApplySetting | AwaitRequests)}
    events = [each for each in entries if isinstance(each, Done | Refused) and each.command in begun]
    overloads = [each for each in some(entries, SettingMeasured) if each.measurement.overloaded]
    assert overloads, "the load is one that a tried setting cannot serve"
    found = [each.measurement for each in some(entries, SettingMeasured)]
    whole_s = min(each.duration_s for each in found if each.status is MeasurementStatus.MEASURED)
    for each in overloads:
        back, recovered, *_ = [event for event in events if event.at_s >= each.at_s]
        assert each.measurement.status is MeasurementStatus.CENSORED and each.measurement.duration_s < whole_s
        assert begun[back.command] == ApplySetting(back.command, "cuda:0", ())
        assert isinstance(begun[recovered.command], AwaitRequests) and isinstance(recovered, Done)
    for found in (each.measurement for each in some(entries, SettingMeasured)):
        figures = found.services.get("serves")
        is_whole = found.status is MeasurementStatus.MEASURED and figures is not None
        assert not is_whole or figures.missed < 0.05 * figures.arrived, "it was judged by the queue of another setting"


def _batches_were_limited(entries: list[Any], intervals: list[RequestInterval]) -> None:
    """While a setting with a largest batch was in force, no batch was larger."""
    commands = {each.id: each for each in some(entries, ApplySetting)}
    changes = [
        (each.at_s, dict(commands[each.command].setting).get(BATCH, 4.0))
        for each in entries
        if hasattr(each, "at_s") and getattr(each, "command", None) in commands
    ]
    for (from_s, most), (to_s, _) in zip(changes, [*changes[1:], (1e9, 0.0)], strict=True):
        within = [each for each in intervals if each.from_s > from_s and each.at_s < to_s]
        assert all(size <= most for each in within for size in each.batches)
