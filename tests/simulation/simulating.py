"""Simulations for tests, each with the checks that every run must pass."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ecoshare.base.attempt import Outcome
from ecoshare.core.commands import AskSetting, Command
from ecoshare.core.events import Config, Event, JobExited
from ecoshare.core.policies import known_names, named
from ecoshare.core.policies.common import ObjectivePolicy
from ecoshare.core.scheduler import Scheduler
from ecoshare.knowledge.advisers.advice import Advice
from ecoshare.simulation.cluster import Cluster
from ecoshare.simulation.costs import NO_COSTS, Costs
from ecoshare.simulation.result import SimulationResult
from ecoshare.simulation.simulator import Simulator
from ecoshare.simulation.traces.job_trace import Trace, TraceJob, in_order
from ecoshare.simulation.world import World
from ecoshare.testing.allocation_audit import AllocationAudit

OURS = [name for name in known_names() if named(name).__module__.startswith("ecoshare.")]
"""Policies of this distribution; other tests register some of their own."""

Log = list[tuple[Event, list[Command]]]
"""Events, each with the commands that followed from it."""


@dataclass(frozen=True)
class Simulated:
    """Finished simulation that has passed the checks."""

    result: SimulationResult
    log: Log

    def commands(self) -> list[Command]:
        """All commands in order."""
        return [command for _, commands in self.log for command in commands]


def made(jobs: Sequence[TraceJob]) -> Trace:
    """Trace of these jobs, with the file name made.csv."""
    return Trace("made.csv", "made", in_order(jobs), "")


def simulate(
    trace: Trace,
    cluster: Cluster,
    config: Config,
    world: World,
    costs: Costs = NO_COSTS,
    tuner: Callable[[AskSetting], Advice] | None = None,
) -> Simulated:
    """Simulate a trace, and check the run."""
    log: Log = []
    result = Simulator(trace, cluster, config, world, costs, tuner).run(lambda *each: log.append(each))
    check_replay(log)
    check_account(trace, cluster, config, world, result, log)
    return Simulated(result, log)


def check_replay(log: Log) -> None:
    """Check that the same events lead a fresh core to the same commands."""
    core = Scheduler()
    for event, commands in log:
        assert core.handle(event) == commands, event


def check_account(
    trace: Trace, cluster: Cluster, config: Config, world: World, result: SimulationResult, log: Log
) -> None:
    """Check that no place was given twice, and that every job ended once, with its work done and no sooner than alone.

    Trials of sweeps may be pruned, and services end with the other jobs: only the first condition holds for them.
    """
    trials = [trial.job for sweep in trace.sweeps for trial in sweep.trials]
    jobs = {job.name: job for job in trace.jobs if job.service is None}
    if not jobs and not trials:
        return
    everything = replace(trace, jobs=in_order([*trace.jobs, *trials]), sweeps=())
    places = named(config.policy).places or config.places_per_lane
    ledger = AllocationAudit(everything, cluster, world, places, log)
    assert not ledger.faults, ledger.faults[:3]
    ends = [event.job for event, _ in log if isinstance(event, JobExited) and event.outcome is Outcome.COMPLETED]
    assert Counter(ends) >= Counter(jobs.keys()) and len(ends) == len(set(ends)), "every job ends, once"
    for each in result.finished:
        if each.name in jobs:
            job = jobs[each.name]
            assert ledger.iterations[job.name] == job.iterations, "work done = work asked"
            assert each.placed_s <= each.jct_s + 1e-6
    if not trials and not cluster.speeds and not any(job.speedups for job in jobs.values()):
        assert all(each.jct_s >= jobs[each.name].service_s - 1e-6 for each in result.finished if each.name in jobs), (
            "JCT >= service time"
        )
    if len(jobs) < len(trace.jobs):
        return  # a service draws power while it answers, which the ledger does not know
    measures = config.profile or config.search or issubclass(named(config.policy), ObjectivePolicy)
    if not trials and not measures and places == 1:  # else the ledger cannot tell which job of a lane has the turn
        assert math.isclose(result.energy_j, ledger.energy_j, rel_tol=1e-9, abs_tol=1e-3), "integral of power"
