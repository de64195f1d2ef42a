"""Run folders with logs of the real core in virtual time; settings change speeds and power."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ecoshare.base.measurement import Setting
from ecoshare.core.commands import AskSetting, Command
from ecoshare.core.events import Config, Event
from ecoshare.knowledge.advisers.advice import Advice
from ecoshare.record.accounts.run_energy import RunEnergy
from ecoshare.record.event_log import EventLog, steps
from ecoshare.record.plan_document import JobDocument, PlanDocument
from ecoshare.record.samples import Line, Sample, Session
from ecoshare.simulation.cluster import Cluster
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.traces.job_trace import TraceJob
from ecoshare.simulation.world import World
from tests.simulation.simulating import made, simulate
from tests.simulation.test_packs import GPU

DEVICE = "n0g0"
METER_W = 100.0
"""Constant power (W) of the meter in these runs."""

Entries = list[Event | Command]


@dataclass(frozen=True, slots=True)
class Settable(World):
    """World in which settings change speed and power.

    Attributes:
        effects: Speed, and power beyond idle, relative to the default, by setting.
    """

    effects: Mapping[Setting, tuple[float, float]] = field(default_factory=dict)

    def speed(
        self,
        job: TraceJob,
        devices: Sequence[str],
        beside: Sequence[TraceJob],
        setting: Setting = (),
        at_s: float = 0.0,
    ) -> float:
        """Relative speed of a job, lower at a setting."""
        return World.speed(self, job, devices, beside) * self.effects.get(setting, (1.0, 1.0))[0]

    def device_watts(
        self, jobs: Sequence[TraceJob], device: str = "", setting: Setting = (), at_s: float = 0.0
    ) -> float:
        """Power (W), lower at a setting."""
        return World.device_watts(self, jobs) * self.effects.get(setting, (1.0, 1.0))[1]


def proposing(*settings: Setting, best: Setting) -> Callable[[AskSetting], Advice]:
    """Tuner that measures these settings for every packing, the default first, and then names the best."""
    asked: dict[Any, int] = {}

    def answer(ask: AskSetting) -> Advice:
        count = asked[ask.packing] = asked.get(ask.packing, 0) + 1
        tried = ((), *settings)
        return Advice(tried[count - 1]) if count <= len(tried) else Advice(best, over=True)

    return answer


def entries_of(
    jobs: list[TraceJob], truth: World, config: Config, tuner: Callable[[AskSetting], Advice] | None = None
) -> Entries:
    """Log of a run on one device."""
    found = simulate(made(jobs), Cluster(1, 1, GPU), config, truth, Costs(), tuner)
    return [entry for event, commands in found.log for entry in (event, *commands)]


def plan(jobs: list[TraceJob], config: Config) -> PlanDocument:
    """Plan of a run on one device."""
    device = {"name": DEVICE, "kind": "cuda", "model": "a GPU", "uuid": "GPU-1", "memory_bytes": 1 << 30, "cores": 2}
    return PlanDocument(
        job_file="/jobs.yaml",
        digest="",
        objective="energy",
        policy=config.policy,
        devices=[device],
        lanes=config.lanes_per_device,
        places_per_lane=4,
        profiles=None,
        notes=[],
        jobs=[
            JobDocument(
                name=each.name,
                job_class=each.job_class,
                slowdown_limit=each.slowdown_limit,
                arrival_s=each.arrival_s,
            )
            for each in jobs
        ],
    )


def metered(end_s: float) -> RunEnergy:
    """Joules of a device with constant power."""
    session = Session(0.0, DEVICE, "a meter", "measured", "gpu", "about it", 0.1, 40.0)
    times_s = [0.5 * step for step in range(int(2 * end_s) + 2)]
    lines: list[Line] = [session, *(Sample(at_s, METER_W * at_s, device=DEVICE) for at_s in times_s)]
    return RunEnergy.of_lines([DEVICE], lines, lambda _job: None)


def write(path: Path, plan: PlanDocument, entries: Entries) -> Path:
    """Write a run folder with this plan and log."""
    path.mkdir(parents=True)
    (path / "plan.json").write_text(json.dumps(plan.as_dict()))
    log = EventLog(path / "events.jsonl")
    for event, commands, _ in steps(entries):
        log.write(event, commands)
    log.close()
    return path
