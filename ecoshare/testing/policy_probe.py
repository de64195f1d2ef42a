"""Probe between the core and a policy: it checks each answer, so that a mistake is found where it is made."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from numbers import Real
from typing import Any

from ecoshare.base.plural import counted
from ecoshare.core.policies.base import (
    ElasticPolicy,
    FillingPolicy,
    GangPlacementPolicy,
    LevelPolicy,
    MovingPolicy,
    PlannedPolicy,
    RoundPolicy,
    TrialPackingPolicy,
)
from ecoshare.core.records import Job, JobState, Key, Lane


class PolicyRule(Enum):
    """Rules that an answer of a policy can break."""

    COMPARABLE = "comparable"
    REPEATABLE = "repeatable"
    WAITING = "waiting"
    DRIFT = "drift"
    BY_ITSELF = "by itself"


class GivenUp(Exception):
    """A simulation that cannot reach its end: the policy raised an error, or wakes the core for ever."""


@dataclass(slots=True)
class _Said:
    """Last answers of order() and drift() for a job, with the time and state of the job."""

    job: Job
    state: JobState
    place: Key
    at_s: float
    drift: float = 0.0


class PolicyProbe:
    """Policy that forwards each question to another policy, asks it twice, and notes wrong answers.

    The probe has those methods of `LevelPolicy`, `RoundPolicy`, `FillingPolicy`, `PlannedPolicy`,
    `GangPlacementPolicy`, `MovingPolicy`, `ElasticPolicy` and `TrialPackingPolicy` that the other policy has.
    """

    def __init__(self, policy: Any, preempt: bool, faults: dict[PolicyRule, str]) -> None:
        """Probe of `policy`.

        Args:
            policy: The policy that answers.
            preempt: Whether the run preempts jobs for jobs ahead of them.
            faults: Dictionary that the probe fills: for each rule, the first answer that breaks it, in words.
        """
        self.name, self.places, self.options = policy.name, policy.places, policy.options
        self.backfill, self.preempts, self.rotates = policy.backfill, policy.preempts, policy.rotates
        self._policy, self._faults = policy, faults
        self._moves = preempt and policy.preempts and not isinstance(policy, RoundPolicy)
        self._said: dict[str, _Said] = {}
        self._due_s: dict[str, float] = {}
        self._parts: dict[str, int] = {}
        if isinstance(policy, LevelPolicy):
            self.changes_s, self.change = self._changes_s, self._change
        if isinstance(policy, RoundPolicy):
            self.round_s, self.arrange = policy.round_s, self._arrange
        if isinstance(policy, FillingPolicy):
            self.fill = self._fill
        if isinstance(policy, PlannedPolicy):
            self.planner, self.planned_by = policy.planner, policy.planned_by
            self.question, self.told = policy.question, policy.told
        if isinstance(policy, GangPlacementPolicy):
            self.across, self.meet, self.slowness = policy.across, policy.meet, self._slowness
        if isinstance(policy, MovingPolicy):
            self.move_s = policy.move_s
        if isinstance(policy, ElasticPolicy):
            self.restart_s, self.needs, self.pour = policy.restart_s, policy.needs, self._pour
        if isinstance(policy, TrialPackingPolicy):
            self.beside, self.pays, self.judge = self._beside, policy.pays, policy.judge

    def order(self, job: Job, at_s: float) -> Any:
        """The policy's answer, which the probe keeps and compares with later answers.

        Raises:
            GivenUp: The policy raised an error. All other methods that ask the policy raise it, too.
        """
        place = self._ask("order", job, at_s)
        if self._compare("order", place, _of(job)):
            self._said[job.spec.name] = _Said(job, job.state, place, at_s)
        return place

    def drift(self, job: Job) -> Any:
        """The policy's answer: change per second of the order of a running job."""
        drift, said = self._ask("drift", job), self._said.get(job.spec.name)
        if not (_is_number(drift) and math.isfinite(drift)):
            self._fault(PolicyRule.COMPARABLE, f"drift() of {_of(job)} is {drift!r}: expected a finite number")
        elif drift and said and not said.place:
            self._fault(PolicyRule.DRIFT, f"drift() of {_of(job)} is {drift:g}, but order() has no part that changes")
        elif said:
            said.drift = drift
        return drift

    def lane(self, lane: Lane) -> Any:
        """The policy's answer, checked to be a tuple of numbers."""
        key = self._ask("lane", lane)
        self._compare("lane", key, _of(lane))
        return key

    def rank(self, job: Job) -> Any:
        """The policy's answer, checked to be a number."""
        rank = self._ask("rank", job)
        if not _is_number(rank):
            self._fault(PolicyRule.COMPARABLE, f"rank() of {_of(job)} is {rank!r}: expected a number")
        return rank

    def look(self, at_s: float) -> None:
        """Note answers on jobs that no longer hold; call it after each event."""
        for name, said in list(self._said.items()):
            if said.job.state.ended:
                del self._said[name]
            elif said.job.state is said.state and self._due_s.get(name, math.inf) > at_s + 1e-6:
                self._still(said, at_s)

    def _still(self, said: _Said, at_s: float) -> None:
        waits = said.state.waits
        if not waits and not (self._moves and said.job.has_turn_alone):
            return
        moved = 0.0 if waits else (at_s - said.at_s) * said.drift
        expected = (*(part + moved for part in said.place[:1]), *said.place[1:])
        now = self._ask("order", said.job, at_s)
        if len(now) == len(expected) and all(map(_close, now, expected)):
            return
        was = f"order() of {_of(said.job)} was {said.place} at {said.at_s:g} s and is {now} at {at_s:g} s"
        if waits:
            why = "while it waited; the queue is sorted when a job begins to wait, and not again (see `LevelPolicy`)"
            self._fault(PolicyRule.WAITING, f"{was}, {why}")
        else:
            self._fault(PolicyRule.DRIFT, f"{was}, while it ran; drift() {said.drift:g} a second promised {expected}")

    def _changes_s(self, job: Job, at_s: float) -> Any:
        when_s = self._ask("changes_s", job, at_s)
        if not _is_number(when_s) or when_s < at_s - 1e-6:
            words = f"changes_s() of {_of(job)} at {at_s:g} s is {when_s!r}: expected a time ahead, or math.inf"
            self._fault(PolicyRule.BY_ITSELF, words)
        self._due_s[job.spec.name] = when_s
        return when_s

    def _change(self, job: Job, at_s: float) -> None:
        with _telling("change", _of(job)):
            self._policy.change(job, at_s)

    def _arrange(self, jobs: Sequence[Job], devices: int, at_s: float) -> Sequence[Job]:
        chosen = self._chosen("arrange", jobs, devices, at_s)
        self._said.clear()  # all jobs get new places
        return chosen

    def _fill(self, jobs: Sequence[Job], devices: int, at_s: float) -> Sequence[Job]:
        return self._chosen("fill", jobs, devices, at_s)

    def _chosen(self, method: str, jobs: Sequence[Job], devices: int, at_s: float) -> Sequence[Job]:
        """Answer of a method that chooses jobs for a number of devices, checked."""
        with _telling(method, f"{counted(len(jobs), 'job')} at {at_s:g} s"):
            chosen = list(getattr(self._policy, method)(jobs, devices, at_s))
        if len(set(chosen)) < len(chosen) or not set(chosen) <= set(jobs):
            words = f"chose {[job.spec.name for job in chosen]}: expected some of the jobs that it was given, once"
            self._fault(PolicyRule.BY_ITSELF, f"{method}() {words}")
        if (gpus := sum(job.spec.gpus for job in chosen)) > devices:
            self._fault(
                PolicyRule.BY_ITSELF, f"{method}() chose jobs of {counted(gpus, 'GPU')} for {devices} at {at_s:g} s"
            )
        return chosen

    def _pour(self, needs: Sequence[float], devices: int, share: float, most: Sequence[int]) -> Sequence[float]:
        with _telling("pour", counted(len(needs), "job")):
            wide = list(self._policy.pour(needs, devices, share, most))
        wrong = [
            each
            for each, limit in zip(wide, most, strict=False)
            if not (0.0 < each < 1.0 or each in range(1, limit + 1))
        ]
        if wrong or len(wide) != len(needs):
            expected = f"of each a whole number up to {list(most)}, or a part of 1"
            self._fault(PolicyRule.COMPARABLE, f"pour() of {counted(len(needs), 'job')} is {wide}: expected {expected}")
        return wide

    def _slowness(self, job: Job, lane: Lane) -> Any:
        slowness = self._ask("slowness", job, lane)
        if not (_is_number(slowness) and 0.0 < slowness < math.inf):
            words = f"slowness() of {_of(job)} in {_of(lane)} is {slowness!r}: expected a positive number"
            self._fault(PolicyRule.COMPARABLE, words)
        return slowness

    def _beside(self, job: Job, other: Job) -> Any:
        key = self._ask("beside", job, other)
        if key is not None:
            self._compare("beside", key, f"{_of(job)} and {_of(other)}")
        return key

    def _ask(self, method: str, subject: Job | Lane, *more: float | Lane | Job) -> Any:
        with _telling(method, _of(subject)):
            ask = getattr(self._policy, method)
            answer, again = ask(subject, *more), ask(subject, *more)
        if repr(answer) != repr(again):
            words = f"{method}() of {_of(subject)} was {answer!r}, and {again!r} when it was asked again at once"
            self._fault(PolicyRule.REPEATABLE, words)
        return answer

    def _compare(self, method: str, key: object, subject: str) -> bool:
        if not isinstance(key, tuple) or not all(map(_is_number, key)):
            self._fault(PolicyRule.COMPARABLE, f"{method}() of {subject} is {key!r}: expected a tuple of numbers")
            return False
        if (before := self._parts.setdefault(method, len(key))) != len(key):
            self._fault(
                PolicyRule.COMPARABLE,
                f"{method}() of {subject} has {counted(len(key), 'part')}, and had {before} before",
            )
        return True

    def _fault(self, rule: PolicyRule, words: str) -> None:
        self._faults.setdefault(rule, words)


@contextmanager
def _telling(method: str, subject: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the policy is foreign code and can raise anything
        raise GivenUp(f"{method}() of {subject} raised {type(error).__name__}: {error}") from error


def _of(subject: Job | Lane) -> str:
    if isinstance(subject, Lane):
        return f"lane {subject.number} with {counted(len(subject.jobs), 'job')}"
    return f"job {subject.spec.name} ({subject.state.value})"


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not math.isnan(value)


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-6)
