"""A phase of a job has the setting that is known for it: a real job on a fake GPU, which is put back at the end."""

from __future__ import annotations

import json

import pytest
import yaml

from ecoshare.base.measurement import JobPhase, Setting, class_in
from ecoshare.core.commands import ApplySetting
from ecoshare.core.events import PhaseBegan
from ecoshare.knowledge.tuning_store import TuningStore
from tests.devices.claims import FOUND_W
from tests.driver.training import COMPUTES, SCRIPT
from tests.knowledge.test_tuning_store import tuned
from tests.runtime.machine import BEFORE, MARKS, Machine
from tests.warm import ecoshare

pytestmark = MARKS

EVALUATION = """
import time

def evaluate(seconds):
    end_s = time.monotonic() + seconds
    with torch.no_grad():
        while time.monotonic() < end_s:
            model(torch.ones(1, 4))
            gpu.work(args.ms / 1000)
            torch.cuda.synchronize()

"""
BEFORE_THE_LOOP = "for step in range(args.steps):"


@pytest.mark.nightly
def test_a_phase_has_the_setting_that_is_known_for_it(machine: Machine) -> None:
    loop = f"{EVALUATION}{BEFORE_THE_LOOP}\n    if step % 80 == 79:\n        evaluate(12)"
    (machine.folder / "trains.py").write_text(SCRIPT.replace(BEFORE_THE_LOOP, loop))
    job = COMPUTES.job(160, "--responds")
    (machine.folder / "jobs.yaml").write_text(yaml.safe_dump({"version": 1, "jobs": [job]}))
    (planned,) = json.loads(machine.start("run", "jobs.yaml", "--dry-run", "--json").done().stdout)["jobs"]
    store, found = TuningStore(machine.folder / "profiles"), {"gpu_clock": "unlocked", "power_limit": FOUND_W}
    slow: Setting = (("gpu_clock", 1200.0),)
    slower: Setting = (("gpu_clock", 900.0),)
    for phase, best in ((JobPhase.TRAINS, slow), (JobPhase.EVALUATES, slower)):
        packing, device = ((class_in(planned["class"], phase),),), {"model": "NVIDIA H200", "uuid": None}
        store.save(tuned(packing=packing, device=device, default=found, best=found | dict(best)))
    done = machine.run("run", "jobs.yaml", "--policy", "fair", "--no-report")
    assert done.returncode == 0, done.stderr
    assert "computes (evaluating)" in done.stderr, "the plan tells what will be set"
    entries = machine.entries()
    phases = [each.phase for each in entries if isinstance(each, PhaseBegan)]
    assert phases[:3] == [JobPhase.EVALUATES, JobPhase.TRAINS, JobPhase.EVALUATES]
    applied = [each.setting for each in entries if isinstance(each, ApplySetting)]
    assert applied[:4] == [slow, slower, slow, slower]
    assert machine.driver.gpu(0).settings() == BEFORE
    explained = ecoshare("explain", cwd=machine.folder)
    assert "computes alone, evaluating" in explained.stdout, explained.stderr
