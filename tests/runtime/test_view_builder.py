"""The view of a run is the present one, though jobs without a place keep their last view until their next move."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.events import Config
from ecoshare.core.scheduler import Scheduler
from ecoshare.runtime.job_arrivals import Arrivals
from ecoshare.runtime.live_requests import ServiceViews
from ecoshare.runtime.live_views import RunViews
from ecoshare.runtime.nodes.run_node import AttemptReading, DeviceReading, LaneReading
from ecoshare.testing.virtual_driver import ScriptedJob, VirtualDriver

CRASHES = ((1.2, Outcome.CRASHED), (1.6, Outcome.COMPLETED))


def views_of(core: Scheduler, names: list[str], node: Any = None) -> RunViews:
    """Views of a run of which no job has a process without a node: so every job keeps its view."""
    jobs = [SimpleNamespace(spec=JobSpec(name, "class"), learned=None) for name in names]
    nothing = cast(Any, SimpleNamespace(live=set(), metric_of=lambda _name: None))
    run = SimpleNamespace(
        plan=SimpleNamespace(jobs=jobs, sweeps=(), lanes=1),
        jobs={job.spec.name: job for job in jobs},
        devices=(),
        core=core,
        node=node or SimpleNamespace(in_progress=(), ready=None),
        sweeping=nothing,
        requests=ServiceViews(lambda: 0.0),
        arrivals=Arrivals({}, nothing, lambda: 0.0, lambda make: None),
        warnings={},
        now_s=lambda: 50.0,
    )
    return RunViews(cast(Any, run))


def test_a_kept_view_is_always_that_of_now() -> None:
    scripted = {
        "retried": (JobSpec("retried", "class", retries=1), ScriptedJob(attempts=CRASHES)),
        "fails": (JobSpec("fails", "class"), ScriptedJob(0.3, attempts=CRASHES[:1])),
        "waits": (JobSpec("waits", "class"), ScriptedJob(0.5, attempts=((3.0, Outcome.COMPLETED),))),
        "late": (JobSpec("late", "class"), ScriptedJob(4.0)),
    }
    config = Config("fair", places_per_lane=1, profile=True)
    log = VirtualDriver(config, (Device("cpu", "here", 16 << 30),), scripted).run().log
    core = Scheduler()
    kept = views_of(core, list(scripted))
    states: set[tuple[str, str]] = set()
    again = 0
    before = kept.run()
    for event, _ in log:
        core.handle(event)
        now = kept.run()
        assert now == views_of(core, list(scripted)).run()
        states |= {(job.name, job.state) for job in now.jobs}
        again += sum(new is old for new, old in zip(now.jobs, before.jobs, strict=True))
        before = now
    assert {("retried", "queued"), ("retried", "completed"), ("fails", "failed"), ("late", "arriving")} <= states
    assert again > len(log), "most views are kept"


def test_a_job_that_waits_for_long_is_told_with_the_jobs_that_have_the_turn_and_without_a_rate() -> None:
    scripted = {name: (JobSpec(name, "class"), ScriptedJob()) for name in ("has", "waits")}
    driver = VirtualDriver(Config("fair"), (Device("cpu", "here", 16 << 30),), scripted)
    core = Scheduler()
    for event, _ in driver.run().log:
        core.handle(event)
        if all(name in core.jobs and core.jobs[name].lanes for name in scripted):
            break
    usage = Usage(iterations=50, span_s=10.0)
    readings = {"has": AttemptReading(usage, (0,), (0,)), "waits": AttemptReading(usage, (0,), (), 40.0)}
    lanes = {0: LaneReading("has", (), 0.0)}
    node = SimpleNamespace(
        in_progress=set(scripted),
        attempt=readings.get,
        device=lambda _name: DeviceReading((), "", lanes),
        ready=None,
    )
    view = views_of(core, list(scripted), node)
    has, waits = view.run().jobs
    assert (has.rate, has.turn_wait_s, has.behind) == (4.9, 0.0, ())
    assert (waits.rate, waits.turn_wait_s, waits.behind) == (None, 40.0, ("has",))
    readings["waits"] = AttemptReading(usage, (0,), (), 0.3)
    assert view.run().jobs[1].rate == 4.9, "short waits are a part of taking turns"
