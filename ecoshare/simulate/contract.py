"""What every policy must keep, as tests that its author can run.

A class in a test file of one's own is enough, and needs pytest only::

    from ecoshare.simulate.contract import PolicyContract

    class TestMine(PolicyContract):
        policy = "mine"  # its name where its package is installed, or the class itself

Each test simulates made-up jobs on two nodes of two GPUs, each GPU a job's own (those behind give way) or two lanes of
four places (jobs take turns). Between the core and the policy stands a `_Probe` that looks at each answer, so that a
mistake is found where it is made; a `_Ledger` adds up from the log what was given to whom.
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
from numbers import Real
from pkgutil import resolve_name
from random import Random
from typing import Any, ClassVar

from ecoshare.core.commands import Command, KillJob, OpenLane, StartJob
from ecoshare.core.events import Config, Done, Event, JobExited, Outcome
from ecoshare.core.memory import MemoryDemand, lane_fits
from ecoshare.core.policies import GROUP, POLICIES, UnknownPolicy, named
from ecoshare.core.policies.base import Levels, Planning, Rounds
from ecoshare.core.records import Job, Key, Lane
from ecoshare.core.states import JobState
from ecoshare.errors import UsageError
from ecoshare.simulate.cluster import Cluster
from ecoshare.simulate.costs import Costs
from ecoshare.simulate.gpus import GPUS
from ecoshare.simulate.result import Result
from ecoshare.simulate.simulator import Simulator
from ecoshare.simulate.traces.trace import Phase, Trace, TraceJob, in_order
from ecoshare.simulate.world import World

JOBS = 24
"""In each trace."""

SEEDS = range(6)
"""Of the traces; with 0 all jobs are alike and come at once, so that only the order of arrival tells them apart."""

_MOST_EVENTS = 1000 * JOBS
"""Of one trace, before a policy is said to wake the core for ever; one that does not needs a tenth."""

_GPU, _GIB = GPUS["v100"], 1 << 30
_CLUSTER, _WORLD, _COSTS = Cluster(2, 2, _GPU), World(_GPU), Costs(0.1, 0.2, 0.3, 0.001)


class _Way(Enum):
    """How jobs share the GPUs."""

    ALONE = "a GPU for each job"
    SHARED = "jobs share lanes"


class _Rule(Enum):
    """What an answer of a policy can break."""

    COMPARABLE = "comparable"
    REPEATABLE = "repeatable"
    WAITING = "waiting"
    DRIFT = "drift"
    BY_ITSELF = "by itself"


_DECLARED: dict[str, tuple[str, Callable[[Any], object]]] = {
    "name": ("a word", lambda it: isinstance(it, str) and it),
    "places": ("a whole number from 1, or None", lambda it: it is None or (isinstance(it, int) and it >= 1)),
    "preempts": ("True or False", lambda it: isinstance(it, bool)),
    "backfill": ("True or False", lambda it: isinstance(it, bool)),
    "options": ("a tuple of names", lambda it: isinstance(it, tuple) and all(isinstance(each, str) for each in it)),
    **dict.fromkeys(("order", "drift", "lane", "rank"), ("a method", callable)),
}
"""What the class of a policy must have, in words and as a test."""


@dataclass(slots=True)
class _Run:
    """What came of a trace: of the policy's answers the first against each rule, and why it was cut off, if it was."""

    where: str
    way: _Way
    trace: Trace
    places: int
    log: list[tuple[Event, tuple[Command, ...]]] = field(default_factory=list)
    faults: dict[_Rule, str] = field(default_factory=dict)
    result: Result | None = None
    error: str = ""


class _Raised(Exception):
    """The policy raised an error, or wakes the core for ever."""


class PolicyContract:
    """Tests of one policy; subclass it in a test file, with a name that pytest collects.

    Attributes:
        policy: Its name, or the class.
        options: Of the policy, names and values: such that something happens within the minute that a trace takes.
        past_gpu_s: For policies that learn from past jobs.
    """

    policy: ClassVar[Any] = None
    options: ClassVar[tuple[tuple[str, float], ...]] = ()
    past_gpu_s: ClassVar[Sequence[float]] = (5.0, 10.0, 50.0)

    def test_it_says_what_it_is(self) -> None:
        """Its class has what the core and the command line ask for."""
        found = self._found()
        for name, (what, holds) in _DECLARED.items():
            value = getattr(found, name, None)
            _must(hasattr(found, name) and holds(value), f"{found.__name__}.{name} is {value!r}: expected {what}")
        if isinstance(self.policy, str):
            _must(found.name == self.policy, f"{self.policy!r} is an entry point, and its class says {found.name!r}")
        else:
            taken = POLICIES.get(found.name, found) is not found
            _must(not taken, f"{found.__name__}.name is {found.name!r}, as a policy of ecoshare's own")
        unknown = sorted({name for name, _ in self.options} - set(found.options))
        _must(not unknown, f"{', '.join(unknown)}: none of {found.__name__}.options, which are {found.options}")
        words = f"{found.__name__} has options, and needs a class method from_config(config) that takes them"
        _must(not found.options or hasattr(found, "from_config"), words)
        self._make(Config(found.name))
        self._make(self._config(_Way.ALONE))

    def test_every_job_ends(self) -> None:
        """Nobody waits for ever, and nothing that the policy does stops the scheduler."""
        for run in self._runs():
            _must(not run.error, f"{run.where}: {run.error}" + "".join(f"\nbefore: {it}" for it in run.faults.values()))
            exits = [event for event, _ in run.log if isinstance(event, JobExited)]
            ends = Counter(event.job for event in exits if event.outcome is Outcome.COMPLETED)
            _must(ends == Counter(job.name for job in run.trace.jobs), f"{run.where}: jobs ended {dict(ends)}")

    def test_nothing_is_given_twice(self) -> None:
        """No device, place or memory is over-committed, and a job gets all its devices or none."""
        for run in self._runs():
            faults = _Ledger(run).faults
            _must(not faults, f"{run.where}: {'; '.join(faults[:3])}")

    def test_work_done_is_work_asked(self) -> None:
        """Each job does all its iterations, and none is faster than alone."""
        for run, result, ledger in self._finished():
            jobs = {job.name: job for job in run.trace.jobs}
            for each in result.finished:
                job, worked_s = jobs[each.name], ledger.worked_s[each.name]
                words = f"{run.where}: job {job.name} of {job.service_s:g} s"
                _must(each.jct_s >= job.service_s - 1e-6, f"{words} took {each.jct_s:g} s")
                done = ledger.iterations[job.name]
                _must(done == job.iterations, f"{words} did {done} iterations of {job.iterations}")
                _must(worked_s >= job.service_s - 1e-6, f"{words} had its places for {worked_s:g} s")
                exact = run.way is _Way.SHARED or worked_s <= job.service_s + 1e-6
                _must(exact, f"{words} had its GPUs for {worked_s:g} s")

    def test_energy_is_the_integral_of_power(self) -> None:
        """The joules of a run are what its devices drew, added up over time."""
        for run, result, ledger in self._finished():
            words = f"{run.where}: {result.energy_j:g} J, and the power of its devices adds up to {ledger.energy_j:g} J"
            _must(math.isclose(result.energy_j, ledger.energy_j, rel_tol=1e-9, abs_tol=1e-3), words)

    def test_the_order_of_a_job_that_waits_does_not_depend_on_the_time(self) -> None:
        """The queue is sorted when a job begins to wait, never again."""
        self._must_keep(_Rule.WAITING)

    def test_drift_is_what_its_order_does_while_a_job_runs(self) -> None:
        """Who must give way is found by drift(), without asking order() again."""
        self._must_keep(_Rule.DRIFT)

    def test_its_answers_can_be_compared(self) -> None:
        """order() and lane() are tuples of numbers, rank() is a number."""
        self._must_keep(_Rule.COMPARABLE)

    def test_levels_and_rounds_keep_their_word(self) -> None:
        """What a policy does as time goes by lies ahead, and concerns jobs that are there."""
        self._must_keep(_Rule.BY_ITSELF)

    def test_equal_inputs_give_equal_decisions(self) -> None:
        """Asked twice, a policy says the same; run twice, a trace goes the same way."""
        self._must_keep(_Rule.REPEATABLE)
        self._must_equal(list(self.decisions()), "a second run of the same trace")

    def test_a_fresh_process_decides_alike(self) -> None:
        """Neither the order of sets nor anything else of a process decides."""
        found = self._found()
        policy = self.policy if isinstance(self.policy, str) else f"{found.__module__}:{found.__qualname__}"
        spec = {"policy": policy, "options": self.options, "past_gpu_s": list(self.past_gpu_s)}
        program = "from ecoshare.simulate.contract import tell_decisions; tell_decisions()"
        line = [sys.executable, "-c", program, json.dumps(spec)]
        path = os.pathsep.join(each for each in sys.path if each)
        for seed in ("1", "2"):
            environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
            done = subprocess.run(line, capture_output=True, text=True, env=environment, check=False)
            last = (done.stderr.strip().splitlines() or [""])[-1]
            _must(done.returncode == 0, f"policy {found.name} cannot be run in a fresh process: {last}")
            self._must_equal(done.stdout.splitlines(), f"a fresh process (PYTHONHASHSEED={seed})")

    def decisions(self) -> Iterator[str]:
        """All decisions of the first two traces, one a line."""
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

    def _must_keep(self, rule: _Rule) -> None:
        for run in self._runs():
            _must(rule not in run.faults, f"{run.where}: {run.faults.get(rule)}")

    def _found(self) -> Any:
        """The class of the policy."""
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
        lanes, places = (1, 1) if way is _Way.ALONE else (2, 4)
        options, past = tuple(sorted((name, value) for name, value in self.options)), tuple(self.past_gpu_s)
        preempt = way is _Way.ALONE
        return Config(self._found().name, lanes, places, preempt=preempt, options=options, past_gpu_s=past)

    def _make(self, config: Config) -> Any:
        found = self._found()
        try:
            return found.from_config(config) if hasattr(found, "from_config") else found()
        except Exception as error:  # whatever somebody else's class does
            given = ", ".join(f"{name}={value:g}" for name, value in config.options) or "no options"
            words = f"policy {found.name} cannot be made with {given}: {type(error).__name__}: {error}"
            raise AssertionError(words) from error

    def _runs(self) -> Iterator[_Run]:
        contract: Any = type(self)  # hashable, which mypy does not believe
        return (_simulated(contract, way, seed) for way in _Way for seed in SEEDS)

    def _finished(self) -> Iterator[tuple[_Run, Result, _Ledger]]:
        """Those that came to their end; of the others `test_every_job_ends` tells."""
        return ((run, run.result, _Ledger(run)) for run in self._runs() if run.result is not None)

    def _simulate(self, way: _Way, seed: int) -> _Run:
        config, trace = self._config(way), _trace(seed)
        policy = self._make(config)
        where = f"policy {config.policy}, trace {seed}, {way.value}"
        run = _Run(where, way, trace, policy.places or config.places_per_lane)
        probe = _Probe(policy, config.preempt, run.faults)

        def watch(event: Event, commands: list[Command]) -> None:
            run.log.append((event, tuple(commands)))
            probe.look(event.at_s)
            if len(run.log) > _MOST_EVENTS:
                raise _Raised(f"the core is woken for ever: {len(run.log)} events by {event.at_s:g} s")

        with _known(probe) as name:
            try:
                simulator = Simulator(trace, _CLUSTER, replace(config, policy=name), _WORLD, _COSTS)
                run.result = simulator.run(watch)
            except (UsageError, _Raised) as error:
                run.error = str(error)
            except Exception as error:  # what the core does with answers that it cannot use
                run.error = f"the scheduler cannot go on: {type(error).__name__}: {error}"
        return run


@lru_cache(2 * len(SEEDS))
def _simulated(contract: Callable[[], PolicyContract], way: _Way, seed: int) -> _Run:
    """Once for the tests that look at the same traces."""
    return contract()._simulate(way, seed)


def tell_decisions() -> None:
    """Print the decisions of the policy that the first argument describes: what a fresh process is asked for."""
    spec = json.loads(sys.argv[1])
    if ":" in spec["policy"]:
        spec["policy"] = resolve_name(spec["policy"])
    contract: PolicyContract = type("Fresh", (PolicyContract,), spec)()
    for line in contract.decisions():
        print(line)


def _must(holds: object, words: str) -> None:
    """As `assert`, but also under `python -O`."""
    __tracebackhide__ = True
    if not holds:
        raise AssertionError(words)


@contextmanager
def _known(probe: _Probe) -> Iterator[str]:
    """The core finds the probe by the name that this gives."""
    name = f"{probe.name} (under contract)"
    POLICIES[name] = type("Made", (), {"from_config": lambda _config: probe})
    try:
        yield name
    finally:
        del POLICIES[name]


def _trace(seed: int) -> Trace:
    """Jobs of all kinds: many at one moment, gangs, with and without known memory."""
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


@dataclass(slots=True)
class _Said:
    """What order() and drift() have said of a job, and when."""

    job: Job
    state: JobState
    place: Key
    at_s: float
    drift: float = 0.0


class _Probe:
    """Asks the policy in the core's place, each question twice, and notes what is wrong with its answers."""

    def __init__(self, policy: Any, preempt: bool, faults: dict[_Rule, str]) -> None:
        self.name, self.places, self.options = policy.name, policy.places, policy.options
        self.backfill, self.preempts = policy.backfill, policy.preempts
        self._policy, self._faults = policy, faults
        self._moves = preempt and policy.preempts and not isinstance(policy, Rounds)
        self._said: dict[str, _Said] = {}
        self._due_s: dict[str, float] = {}
        self._parts: dict[str, int] = {}
        if isinstance(policy, Levels):
            self.changes_s, self.change = self._changes_s, self._change
        if isinstance(policy, Rounds):
            self.round_s, self.arrange = policy.round_s, self._arrange
        if isinstance(policy, Planning):
            self.planner, self.planned_by = policy.planner, policy.planned_by
            self.question, self.told = policy.question, policy.told

    def order(self, job: Job, at_s: float) -> Any:
        place = self._ask("order", job, at_s)
        if self._compare("order", place, _of(job)):
            self._said[job.spec.name] = _Said(job, job.state, place, at_s)
        return place

    def drift(self, job: Job) -> Any:
        drift, said = self._ask("drift", job), self._said.get(job.spec.name)
        if not (_is_number(drift) and math.isfinite(drift)):
            self._fault(_Rule.COMPARABLE, f"drift() of {_of(job)} is {drift!r}: expected a finite number")
        elif drift and said and not said.place:
            self._fault(_Rule.DRIFT, f"drift() of {_of(job)} is {drift:g}, but order() has no part that changes")
        elif said:
            said.drift = drift
        return drift

    def lane(self, lane: Lane) -> Any:
        key = self._ask("lane", lane)
        self._compare("lane", key, _of(lane))
        return key

    def rank(self, job: Job) -> Any:
        rank = self._ask("rank", job)
        if not _is_number(rank):
            self._fault(_Rule.COMPARABLE, f"rank() of {_of(job)} is {rank!r}: expected a number")
        return rank

    def look(self, at_s: float) -> None:
        """Whether what was said holds now."""
        for name, said in list(self._said.items()):
            if said.job.state.ended:
                del self._said[name]
            elif said.job.state is said.state and self._due_s.get(name, math.inf) > at_s + 1e-6:
                self._still(said, at_s)

    def _still(self, said: _Said, at_s: float) -> None:
        waits = said.state is JobState.QUEUED
        if not waits and not (self._moves and said.job.has_turn_alone):
            return
        moved = 0.0 if waits else (at_s - said.at_s) * said.drift
        expected = (*(part + moved for part in said.place[:1]), *said.place[1:])
        now = self._ask("order", said.job, at_s)
        if len(now) == len(expected) and all(map(_close, now, expected)):
            return
        was = f"order() of {_of(said.job)} was {said.place} at {said.at_s:g} s and is {now} at {at_s:g} s"
        if waits:
            why = "while it waited; the queue is sorted when a job begins to wait, and not again (see `Levels`)"
            self._fault(_Rule.WAITING, f"{was}, {why}")
        else:
            self._fault(_Rule.DRIFT, f"{was}, while it ran; drift() {said.drift:g} a second promised {expected}")

    def _changes_s(self, job: Job, at_s: float) -> Any:
        when_s = self._ask("changes_s", job, at_s)
        if not _is_number(when_s) or when_s < at_s - 1e-6:
            words = f"changes_s() of {_of(job)} at {at_s:g} s is {when_s!r}: expected a time ahead, or math.inf"
            self._fault(_Rule.BY_ITSELF, words)
        self._due_s[job.spec.name] = when_s
        return when_s

    def _change(self, job: Job, at_s: float) -> None:
        with _telling("change", _of(job)):
            self._policy.change(job, at_s)

    def _arrange(self, jobs: Sequence[Job], devices: int, at_s: float) -> Sequence[Job]:
        with _telling("arrange", f"{len(jobs)} jobs at {at_s:g} s"):
            chosen = list(self._policy.arrange(jobs, devices, at_s))
        self._said.clear()  # all get their places anew
        if len(set(chosen)) < len(chosen) or not set(chosen) <= set(jobs):
            words = f"chose {[job.spec.name for job in chosen]}: expected some of the jobs that it was given, once"
            self._fault(_Rule.BY_ITSELF, f"arrange() {words}")
        if (gpus := sum(job.spec.gpus for job in chosen)) > devices:
            self._fault(_Rule.BY_ITSELF, f"arrange() chose jobs of {gpus} GPUs for {devices} at {at_s:g} s")
        return chosen

    def _ask(self, method: str, subject: Job | Lane, *more: float) -> Any:
        with _telling(method, _of(subject)):
            ask = getattr(self._policy, method)
            answer, again = ask(subject, *more), ask(subject, *more)
        if repr(answer) != repr(again):
            words = f"{method}() of {_of(subject)} was {answer!r}, and {again!r} when it was asked again at once"
            self._fault(_Rule.REPEATABLE, words)
        return answer

    def _compare(self, method: str, key: object, subject: str) -> bool:
        if not isinstance(key, tuple) or not all(map(_is_number, key)):
            self._fault(_Rule.COMPARABLE, f"{method}() of {subject} is {key!r}: expected a tuple of numbers")
            return False
        if (before := self._parts.setdefault(method, len(key))) != len(key):
            self._fault(_Rule.COMPARABLE, f"{method}() of {subject} has {len(key)} parts, and had {before} before")
        return True

    def _fault(self, rule: _Rule, words: str) -> None:
        self._faults.setdefault(rule, words)


@contextmanager
def _telling(method: str, subject: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # whatever somebody else's policy does
        raise _Raised(f"{method}() of {subject} raised {type(error).__name__}: {error}") from error


def _of(subject: Job | Lane) -> str:
    if isinstance(subject, Lane):
        return f"lane {subject.number} with {len(subject.jobs)} jobs"
    return f"job {subject.spec.name} ({subject.state.value})"


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not math.isnan(value)


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-6)


class _Ledger:
    """Adds up a run again, from its events and commands alone.

    Attributes:
        faults: What was given twice, or not as a whole.
        worked_s: By job, seconds for which it had its places and was started.
        iterations: By job, over all attempts.
        energy_j: Of all devices since the first arrival.
    """

    def __init__(self, run: _Run) -> None:
        self.faults: list[str] = []
        self.worked_s: dict[str, float] = dict.fromkeys((job.name for job in run.trace.jobs), 0.0)
        self.iterations: Counter[str] = Counter()
        self.energy_j = 0.0
        self._jobs = {job.name: job for job in run.trace.jobs}
        self._places = run.places
        self._opened: dict[int, OpenLane] = {}
        self._inside: dict[int, dict[str, MemoryDemand]] = {}
        self._held: dict[str, tuple[int, ...]] = {}
        self._starts: dict[int, str] = {}
        self._at_work: dict[str, None] = {}
        self._at_s = run.trace.jobs[0].arrival_s
        for event, commands in run.log:
            self._follow(event, commands)

    def _follow(self, event: Event, commands: Sequence[Command]) -> None:
        self._pass(event.at_s)
        if isinstance(event, Done) and event.command in self._starts:
            self._at_work[self._starts.pop(event.command)] = None
        elif isinstance(event, JobExited):
            self._at_work.pop(event.job, None)
            self.iterations[event.job] += event.usage.iterations
            for lane in self._held.pop(event.job):
                del self._inside[lane][event.job]
        for command in commands:
            match command:
                case OpenLane():
                    self._opened[command.lane], self._inside[command.lane] = command, {}
                case StartJob():
                    self._take(command)
                case KillJob():
                    self._at_work.pop(command.job, None)

    def _pass(self, at_s: float) -> None:
        passed_s = max(0.0, at_s - self._at_s)
        by_lane = {lane: self._jobs[name] for name in self._at_work for lane in self._held[name]}
        devices: dict[str, list[TraceJob]] = {}
        for lane, job in by_lane.items():
            devices.setdefault(self._opened[lane].device, []).append(job)
        watts = _CLUSTER.size * _GPU.idle_w + sum(map(_WORLD.device_watts, devices.values()))
        self.energy_j += watts * passed_s
        for name in self._at_work:
            self.worked_s[name] += passed_s
        self._at_s += passed_s

    def _take(self, command: StartJob) -> None:
        job = self._jobs[command.job]
        devices = {self._opened[lane].device for lane in command.lanes}
        nodes, most = {device.partition("g")[0] for device in devices}, _CLUSTER.most_nodes(job)
        wrong = {
            f"job {job.name} was started while it ran": job.name in self._held,
            f"job {job.name} of {job.gpus} GPUs got {len(devices)}": not len(devices) == len(command.lanes) == job.gpus,
            f"job {job.name} got {len(nodes)} nodes, and may have {most}": most is not None and len(nodes) > most,
        }
        self._held[job.name], self._starts[command.id] = command.lanes, job.name
        for lane in command.lanes:
            inside, budget = self._inside[lane], self._opened[lane].budget_bytes
            inside[job.name] = job.memory or MemoryDemand(budget if job.gpus > 1 else budget // self._places)
            gang, names = any(self._jobs[name].gpus > 1 for name in inside), ", ".join(inside)
            wrong[f"lane {lane} of a gang is shared: {names}"] = gang and len(inside) > 1
            wrong[f"lane {lane} of {self._places} places has {names}"] = len(inside) > self._places
            wrong[f"lane {lane} has less memory than needed by {names}"] = not lane_fits(inside.values(), budget)
        self.faults += [words for words, holds in wrong.items() if holds]
