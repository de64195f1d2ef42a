"""Energy of a run, from the meter of this machine to the summary."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ecoshare.core.commands import OpenLane, StartJob
from ecoshare.devices import meter, registry
from ecoshare.record.samples import AttemptProgress, Sample, SampleFile, Session, read
from ecoshare.runtime.measuring.device_claim import ClaimedDevice
from ecoshare.runtime.measuring.meter_sampler import MeterSampler
from ecoshare.runtime.nodes.attempts import Attempts
from tests.runtime.running import run, slow_steps


@pytest.mark.slow
def test_the_joules_of_a_run_cover_it(tmp_path: Path) -> None:
    done = run(tmp_path, slow_steps("long", 50), slow_steps("short", 20))
    summary = done.summary
    assert summary["energy"]["covered"] == 1.0 and not summary["energy"]["faults"]
    assert summary["energy"]["source"] in ("measured", "modelled")
    sources = {job["energy"]["source"] for job in summary["jobs"]}
    assert sources == {"attributed" if summary["energy"]["source"] == "measured" else "modelled"}
    session, *samples = read(done.folder / "samples.jsonl")
    assert isinstance(session, Session) and all(isinstance(sample, Sample) for sample in samples)
    first_s = min(job["start_s"] for job in summary["jobs"])
    assert samples[0].at_s <= first_s, "what was spent before the first sample is no job's"
    assert samples[-1].at_s >= max(job["finish_s"] for job in summary["jobs"])
    last: dict[str, AttemptProgress] = {}
    for sample in samples:
        assert isinstance(sample, Sample)
        last.update(sample.jobs)
    assert {key: each.iterations for key, each in last.items()} == {"long#1": 50, "short#1": 20}
    ended_s = done.job("short")["finish_s"]
    told = [sample for sample in samples if isinstance(sample, Sample) and sample.at_s > ended_s]
    assert sum("short#1" in sample.jobs for sample in told) == 1, "what has ended is told once, or lines grow for ever"


def test_a_line_that_a_killed_session_cut_off_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    session = {"session": {"at_s": 0.0, "device": "cpu", "meter": "model", "source": "modelled", "scope": "cpu"}}
    session["session"] |= {"about": "", "period_s": 0.0, "idle_w": None}
    path.write_text(json.dumps(session) + '\n{"at_s": 1.0, "ener')
    file = SampleFile(path)
    sampler = MeterSampler(
        file, ClaimedDevice(registry.processors(), meter.processors_power_model(1)), lambda _on_device: {}
    )
    assert asyncio.run(sampler.begin(lambda: 2.0))
    file.close()
    first, second, sample = read(path)
    assert isinstance(first, Session) and isinstance(second, Session) and isinstance(sample, Sample)


def test_a_job_that_is_not_launched_yet_has_no_part_of_the_server(tmp_path: Path) -> None:
    """The slot of such a job names no process. Before, those of the run counted for it: the server that loads torch."""
    attempts = Attempts(tmp_path, 1, lambda message: None, lambda make: None)
    attempts.open_lane(OpenLane(1, 0, "cpu", 1 << 30), lambda pid: None)
    spec = SimpleNamespace(name="a", job_class="a")
    job: Any = SimpleNamespace(spec=spec, has_ranks=False, part=None, has_first_rank=True)
    attempts.start(StartJob(2, "a", 1, (0,), 1 << 30, False), job)
    works = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ntime.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", works], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None and server.stdout.readline()
            (progress,) = attempts.progress_on(registry.processors(), {}).values()
            kept = attempts.with_children_on(registry.processors(), {server.pid: 1 << 20})
        finally:
            server.kill()
    assert (progress.cpu_s, progress.memory_bytes) == (0.0, None) and not kept


@pytest.mark.slow
def test_a_job_that_does_nothing_spends_next_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text("import time\ntime.sleep(0.8)\n")
    done = run(tmp_path, {"name": "sleeps", "script": "sleeps.py"}, slow_steps("works", 40))
    assert done.job("sleeps")["energy"]["value_j"] < 0.2 * done.job("works")["energy"]["value_j"]


def test_a_sample_is_of_the_moment_at_which_the_meter_was_read(tmp_path: Path) -> None:
    """Before, a stop of the thread between clock and meter took idle joules from the jobs: one had none at all."""
    began_s = time.monotonic()

    def late() -> float:
        at_s = time.monotonic() - began_s
        time.sleep(random.uniform(0.0, 0.05))
        return at_s

    file = SampleFile(tmp_path / "samples.jsonl")
    sampler = MeterSampler(
        file, ClaimedDevice(registry.processors(), meter.processors_power_model(1)), lambda _on_device: {}
    )

    async def sample() -> None:
        await sampler.begin(late)
        for _ in range(5):
            await sampler.take(late)

    asyncio.run(sample())
    file.close()
    samples = [each for each in read(tmp_path / "samples.jsonl") if isinstance(each, Sample)]
    assert len(samples) == 6
    for one, other in itertools.pairwise(samples):
        assert one.energy_j is not None and other.energy_j is not None
        idle_j = meter.processors_power_model(1).idle_w * (other.at_s - one.at_s)
        assert other.energy_j - one.energy_j == pytest.approx(idle_j, rel=1e-6)
