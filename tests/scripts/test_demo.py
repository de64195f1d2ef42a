"""The end of `scripts/demo --devices cpu/2` says what the run shows, by its own record."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts import demo_devices
from scripts.bench.gang_turns import turns
from tests.runtime.running import EXAMPLES, run, slow_steps


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two partitions take two processors")
def test_the_demo_names_jobs_joules_and_turns_of_each_device(tmp_path: Path) -> None:
    gang = {"script": str(EXAMPLES / "ddp.py"), "args": ["--epochs", "2"], "gpus": 2, "launch": "ranks"}
    jobs = [{"name": name, **gang} for name in ("ddp", "again")]
    done = run(tmp_path, *jobs, slow_steps("beside", 100, 10), options=("--device", "cpu/2"))
    assert done.code == 0, done.stderr
    assert done.log("ddp") == done.log("again") and b"epoch  2  train loss" in done.log("ddp")
    found = [turns(done.folder / "jobs" / name) for name in ("ddp", "again")]
    assert sum(len(each.iterations) for each in found) > 2, "the gangs took turns"
    assert all(each.together == len(each.iterations) for each in found)

    lines = demo_devices.shown(done.folder, done.summary)
    energies = [*(each["energy"] for each in done.summary["devices"]), done.summary["energy"]]
    first, second, both = map(demo_devices.joules, energies)
    assert lines[1].startswith("  cpu:0: ddp, again") and lines[1].endswith(f"; {first}")
    assert lines[2].startswith("  cpu:1: ddp, again") and lines[2].endswith(f"; {second}")
    assert ", beside" in lines[1] + lines[2] and first.endswith(" modelled")
    assert lines[3] == f"  all devices: {both}, the sum"
    count = len(found[0].iterations)
    assert f"ddp: 2 ranks on cpu:0 and cpu:1 had {count} turns" in lines[4]
    assert f"ended {count} of them after the same iteration" in lines[4]
    assert lines[-1].endswith("/report.html")
