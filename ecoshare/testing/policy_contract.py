"""Contract of every policy, as tests that its author can run.

A class in the author's own test file is enough, and needs pytest only::

    from ecoshare.testing.policy_contract import PolicyContract

    class TestMine(PolicyContract):
        policy = "mine"  # the name, if the package is installed, or the class itself

Each test simulates generated jobs on two nodes of two GPUs. A GPU either belongs to one job, with preemption, or has
two lanes of four places in which jobs take turns, or one lane of two places and host memory for parked jobs. A
`PolicyProbe` between the core and the policy checks each answer, so that a mistake is found where it is made. An
`AllocationAudit` computes the allocations of each job from the log.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from pkgutil import resolve_name
from random import Random
from typing import Any, ClassVar

from ecoshare.base.attempt import Outcome
from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.plural import counted
from ecoshare.base.printable import last_line
from ecoshare.core.commands import Command, OpenLane, StartJob
from ecoshare.core.events import Config, Event, JobExited
from ecoshare.core.policies import GROUP, UnknownPolicy, named, own_names, register, unregister
from ecoshare.errors import UsageError
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.result import SimulationResult
from ecoshare.simulation.simulator import Simulator
from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob, in_order
from ecoshare.simulation.world import World
from ecoshare.testing.allocation_audit import AllocationAudit
from ecoshare.testing.policy_probe import GivenUp, PolicyProbe, PolicyRule

JOBS = 24
"""Number of jobs of each trace."""

SEEDS = range(6)
"""Seeds of the traces. With seed 0 all jobs are equal and arrive at once, so only the order of arrival differs."""

_MOST_EVENTS = 1000 * JOBS
"""Most events of one trace; with more, the policy counts as waking the core for ever. A good policy needs a tenth."""

_FAILS, _FAILS_AT_S = "n1g0", 12.5
"""GPU that fails in some runs, and the time (s) at which it does: jobs still arrive then."""

_GPU, _GIB = GPUS["v100"], 1 << 30
_CLUSTER, _WORLD, _COSTS = Cluster(2, 2, _GPU), World(_GPU), Costs(0.1, 0.2, 0.3, 0.001)


class _Way(Enum):
    """How jobs share the GPUs."""

    ALONE = "a GPU for each job"
    SHARED = "jobs share lanes"
    PARKED = "jobs share lanes, and are parked, stopped and moved"


_DECLARED: dict[str, tuple[str, Callable[[Any], object]]] = {
    "name": ("a word", lambda it: isinstance(it, str) and it),
    "places": ("a whole number from 1, or None", lambda it: it is None or (isinstance(it, int) and it >= 1)),
    "preempts": ("True or False", lambda it: isinstance(it, bool)),
    "rotates": ("True or False", lambda it: isinstance(it, bool)),
    "backfill": ("True or False", lambda it: isinstance(it, bool)),
    "options": ("a tuple of names", lambda it: isinstance(it, tuple) and all(isinstance(each, str) for each in it)),
    **dict.fromkeys(("order", "drift", "lane", "rank"), ("a method", callable)),
}
"""Attributes that the class of a policy must have, each in words and as a test."""


@dataclass(slots=True)
class _Run:
    """One run of a trace, with the first answer against each rule and the error that ended the run, if any."""

    where: str
    way: _Way
    trace: Trace
    places: int
    log: list[tuple[Event, tuple[Command, ...]]] = field(default_factory=list)
    faults: dict[PolicyRule, str] = field(default_factory=dict)
    result: SimulationResult | None = None
    error: str = ""

    def ledger(self) -> AllocationAudit:
        """Audit of the allocations of this run."""
        return AllocationAudit(self.trace, _CLUSTER, _WORLD, self.places, self.log)


class PolicyContract:
    """Tests of one policy; subclass it in a test file, with a name that pytest collects.

    Attributes:
        policy: Name of the policy, or its class.
        options: Names and values of the policy's options. Choose values that take effect within the minute of arrivals.
        past_gpu_s: GPU-seconds of past jobs, for policies that learn from them.
    """

    policy: ClassVar[Any] = None
    options: ClassVar[tuple[tuple[str, float], ...]] = ()
    past_gpu_s: ClassVar[Sequence[float]] = (5.0, 10.0, 50.0)

    def test_it_says_what_it_is(self) -> None:
        """The class has every attribute that the core and the command line need."""
        found = self._found()
        for name, (what, holds) in _DECLARED.items():
            value = getattr(found, name, None)
            _must(hasattr(found, name) and holds(value), f"{found.__name__}.{name} is {value!r}: expected {what}")
        if isinstance(self.policy, str):
            _must(found.name == self.policy, f"{self.policy!r} is an entry point, and its class says {found.name!r}")
        else:
            taken = found.name in own_names() and named(found.name) is not found
            _must(not taken, f"{found.__name__}.name is {found.name!r}, as a policy of ecoshare's own")
        unknown = sorted({name for name, _ in self.options} - set(found.options))
        _must(not unknown, f"{', '.join(unknown)}: none of {found.__name__}.options, which are {found.options}")
        words = f"{found.__name__} has options, and needs a class method from_config(config) that takes them"
        _must(not found.options or hasattr(found, "from_config"), words)
        self._make(Config(found.name))
        self._make(self._config(_Way.ALONE))

    def test_every_job_ends(self) -> None:
        """No job waits for ever, and no answer of the policy stops the scheduler."""
        for run in self._runs():
            _must(not run.error, f"{run.where}: {run.error}" + "".join(f"\nbefore: {it}" for it in run.faults.values()))
            exits = [event for event, _ in run.log if isinstance(event, JobExited)]
            ends = Counter(event.job for event in exits if event.outcome is Outcome.COMPLETED)
            _must(ends == Counter(job.name for job in run.trace.jobs), f"{run.where}: jobs ended {dict(ends)}")

    def test_nothing_is_given_twice(self) -> None:
        """No device, place or memory is over-committed, and a job gets all of its devices or none."""
        for run in self._runs():
            faults = run.ledger().faults
            _must(not faults, f"{run.where}: {'; '.join(faults[:3])}")

    def test_the_failure_of_a_device_loses_no_job(self) -> None:
        """Jobs of a device that fails go on elsewhere, and no job starts there any more."""
        for way in _Way:
            for seed in SEEDS[1:3]:
                run = self._simulate(way, seed, ((_FAILS_AT_S, _FAILS),))
                _must(not run.error, f"{run.where}: {run.error}")
                ends = {each.name for each in run.result.finished} if run.result is not None else set()
                lost = [job.name for job in run.trace.jobs if job.name not in ends]
                _must(not lost, f"{run.where}, {_FAILS} fails: lost {', '.join(lost)}")
                _must(not run.ledger().faults, f"{run.where}, {_FAILS} fails: {'; '.join(run.ledger().faults[:3])}")
                lanes = {
                    command.lane
                    for _, commands in run.log
                    for command in commands
                    if isinstance(command, OpenLane) and command.device == _FAILS
                }
                started = [
                    command.job
                    for event, commands in run.log
                    for command in commands
                    if isinstance(command, StartJob) and event.at_s >= _FAILS_AT_S and lanes.intersection(command.lanes)
                ]
                _must(not started, f"{run.where}: {', '.join(started)} started on {_FAILS}, which has failed")

    def test_work_done_is_work_asked(self) -> None:
        """Each job does all of its iterations, and no job is faster than alone."""
        for run, result, ledger in self._finished():
            jobs = {job.name: job for job in run.trace.jobs}
            for each in result.finished:
                job, worked_s = jobs[each.name], ledger.worked_s[each.name]
                words = f"{run.where}: job {job.name} of {job.service_s:g} s"
                _must(each.jct_s >= job.service_s - 1e-6, f"{words} took {each.jct_s:g} s")
                done = ledger.iterations[job.name]
                _must(done == job.iterations, f"{words} did {counted(done, 'iteration')} of {job.iterations}")
                _must(worked_s >= job.service_s - 1e-6, f"{words} had its places for {worked_s:g} s")
                exact = run.way is not _Way.ALONE or worked_s <= job.service_s + 1e-6
                _must(exact, f"{words} had its GPUs for {worked_s:g} s")

    def test_energy_is_the_integral_of_power(self) -> None:
        """The energy of a run is the power of its devices, integrated over time."""
        for run, result, ledger in self._finished():
            words = f"{run.where}: {result.energy_j:g} J, and the power of its devices adds up to {ledger.energy_j:g} J"
            _must(math.isclose(result.energy_j, ledger.energy_j, rel_tol=1e-9, abs_tol=1e-3), words)

    def test_the_order_of_a_job_that_waits_does_not_depend_on_the_time(self) -> None:
        """The queue is sorted when a job begins to wait, never again."""
        self._must_keep(PolicyRule.WAITING)

    def test_drift_is_what_its_order_does_while_a_job_runs(self) -> None:
        """The core finds jobs to preempt by drift(), without a second call of order()."""
        self._must_keep(PolicyRule.DRIFT)

    def test_its_answers_can_be_compared(self) -> None:
        """order() and lane() are tuples of numbers, rank() is a number."""
        self._must_keep(PolicyRule.COMPARABLE)

    def test_levels_and_rounds_keep_their_word(self) -> None:
        """A policy names times ahead for its changes, and its rounds choose among the jobs that are present."""
        self._must_keep(PolicyRule.BY_ITSELF)

    def test_equal_inputs_give_equal_decisions(self) -> None:
        """A policy asked twice gives the same answer, and a trace run twice gives the same decisions."""
        self._must_keep(PolicyRule.REPEATABLE)
        self._must_equal(list(self.decisions()), "a second run of the same trace")

    def test_a_fresh_process_decides_alike(self) -> None:
        """Decisions depend neither on the order of sets nor on other state of the process."""
        found = self._found()
        policy = self.policy if isinstance(self.policy, str) else f"{found.__module__}:{found.__qualname__}"
        spec = {"policy": policy, "options": self.options, "past_gpu_s": list(self.past_gpu_s)}
        program = "from ecoshare.testing.policy_contract import tell_decisions; tell_decisions()"
        line = [sys.executable, "-c", program, json.dumps(spec)]
        path = os.pathsep.join(each for each in sys.path if each)
        for seed in ("1", "2"):
            environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
            done = subprocess.run(line, capture_output=True, text=True, env=environment, check=False)
            last = last_line(done.stderr)
            _must(done.returncode == 0, f"policy {found.name} cannot be run in a fresh process: {last}")
            self._must_equal(done.stdout.splitlines(), f"a fresh process (PYTHONHASHSEED={seed})")

    def decisions(self) -> Iterator[str]:
        """Decisions of the first two traces, one on a line."""
        for run in [self._simulate(way, seed) for way in _Way for seed in SEEDS[:2]]:
            yield from (f"{event!r} {commands!r}" for event, commands in run.log)
            yield json.dumps(run.error)

    def _must_equal(self, others: Sequence[str], what: str) -> None:
        ours = list(self.decisions())
        pairs = [*zip(ours, others, strict=False), ("the end", "the end")]
        place = next((place for place, (one, other) in enumerate(pairs) if one != other), len(pairs) - 1)
        lines = "".join(f"\n  {each[:400]}" for each in pairs[place])
        words = f"policy {self._found().name}: {what} decides otherwise, first in line {place + 1}:{lines}"
        _must(ours == others, words)

    def _must_keep(self, rule: PolicyRule) -> None:
        for run in self._runs():
            _must(rule not in run.faults, f"{run.where}: {run.faults.get(rule)}")

    def _found(self) -> Any:
        """Class of the policy."""
        words = f"{type(self).__name__}.policy"
        _must(self.policy is not None, f"{words} must name the policy, or be its class")
        if not isinstance(self.policy, str):
            return self.policy
        try:
            return named(self.policy)
        except UnknownPolicy as error:
            hint = f"is the package installed that has it as an entry point of the group {GROUP!r}?"
            raise AssertionError(f"{words} is {self.policy!r}: {error}; {hint}") from error

    def _config(self, way: _Way) -> Config:
        lanes, places = {_Way.ALONE: (1, 1), _Way.SHARED: (2, 4), _Way.PARKED: (1, 2)}[way]
        options, past = tuple(sorted((name, value) for name, value in self.options)), tuple(self.past_gpu_s)
        preempt, host_bytes = way is _Way.ALONE, 32 * _GIB if way is _Way.PARKED else 0
        config = Config(self._found().name, lanes, places, options=options, past_gpu_s=past)
        return replace(config, preempt=preempt, host_bytes=host_bytes, displaces=way is _Way.PARKED)

    def _make(self, config: Config) -> Any:
        found = self._found()
        try:
            return found.from_config(config) if hasattr(found, "from_config") else found()
        except Exception as error:  # the class is foreign code and can raise anything
            given = ", ".join(f"{name}={value:g}" for name, value in config.options) or "no options"
            words = f"policy {found.name} cannot be made with {given}: {type(error).__name__}: {error}"
            raise AssertionError(words) from error

    def _runs(self) -> Iterator[_Run]:
        contract: Any = type(self)  # hashable, which mypy does not believe
        return (_simulated(contract, way, seed) for way in _Way for seed in SEEDS)

    def _finished(self) -> Iterator[tuple[_Run, SimulationResult, AllocationAudit]]:
        """Runs that reached their end; `test_every_job_ends` reports the rest."""
        return ((run, run.result, run.ledger()) for run in self._runs() if run.result is not None)

    def _simulate(self, way: _Way, seed: int, failures: Sequence[tuple[float, str]] = ()) -> _Run:
        config, trace = self._config(way), _trace(seed)
        if way is _Way.PARKED:  # small jobs, so that moving their memory pays within the trace
            small = MemoryDemand(_GIB // 2, _GIB)
            trace = replace(trace, jobs=tuple(replace(job, memory=small) for job in trace.jobs))
        policy = self._make(config)
        where = f"policy {config.policy}, trace {seed}, {way.value}"
        run = _Run(where, way, trace, policy.places or config.places_per_lane)
        probe = PolicyProbe(policy, config.preempt, run.faults)

        def watch(event: Event, commands: list[Command]) -> None:
            run.log.append((event, tuple(commands)))
            probe.look(event.at_s)
            if len(run.log) > _MOST_EVENTS:
                raise GivenUp(f"the core is woken for ever: {len(run.log)} events by {event.at_s:g} s")

        with _known(probe) as name:
            try:
                made = replace(config, policy=name)
                simulator = Simulator(trace, _CLUSTER, made, _WORLD, _COSTS, failures=failures)
                run.result = simulator.run(watch)
            except (UsageError, GivenUp) as error:
                run.error = str(error)
            except Exception as error:  # the core can raise anything on an answer that it cannot use
                run.error = f"the scheduler cannot go on: {type(error).__name__}: {error}"
        return run


@lru_cache(len(_Way) * len(SEEDS))
def _simulated(contract: Callable[[], PolicyContract], way: _Way, seed: int) -> _Run:
    """Cached run, simulated once for all tests of the same trace."""
    return contract()._simulate(way, seed)


def tell_decisions() -> None:
    """Print the decisions of the policy that the first command-line argument describes, in a fresh process."""
    spec = json.loads(sys.argv[1])
    if ":" in spec["policy"]:
        spec["policy"] = resolve_name(spec["policy"])
    contract: PolicyContract = type("Fresh", (PolicyContract,), spec)()
    for line in contract.decisions():
        print(line)


def _must(holds: object, words: str) -> None:
    """Assert that also works under `python -O`."""
    __tracebackhide__ = True
    if not holds:
        raise AssertionError(words)


@contextmanager
def _known(probe: PolicyProbe) -> Iterator[str]:
    """Context manager that registers the probe as a policy and gives its name."""
    name = f"{probe.name} (under contract)"
    register(name, type("Made", (), {"from_config": lambda _config: probe}))
    try:
        yield name
    finally:
        unregister(name)


def _trace(seed: int) -> Trace:
    """Trace of mixed jobs: many at one moment, gangs, with and without known memory."""
    random = Random(seed)
    jobs = [TraceJob(f"j{number}", "twin", 0.0, (Phase(10, 0.5),)) for number in range(JOBS)]
    for place, twin in enumerate(jobs if seed else ()):
        iterations, service_s = random.randint(1, 50), random.choice([0.3, 2.0, 5.0, 10.0, 10.0, 40.0])
        memory = MemoryDemand(random.randint(0, 10 * _GIB), random.randint(0, 6 * _GIB))
        jobs[place] = replace(
            twin,
            job_class=f"c{iterations}",
            arrival_s=float(random.randint(0, 60)),
            phases=(Phase(iterations, service_s / iterations),),
            gpus=random.choice([1, 1, 1, 2, 3]),
            priority=random.randint(0, 2),
            memory=random.choice([None, memory]),
            skew=random.choice([None, 0.0, 0.9]),
        )
    return Trace(f"contract-{seed}", "contract", in_order(jobs), "")
