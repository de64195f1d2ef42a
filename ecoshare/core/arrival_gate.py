"""Gate before the scheduler: jobs that were submitted and may not arrive yet, since they wait for other jobs.

::

    submit ──► it waits for nothing: ─────────────────────────────────► Eligible ──► JobArrived
           ──► it waits for its time, for other jobs, or for the user       ▲
    passed, released, ended ──► that was the last thing: ───────────────────┘
                            ──► a job that had to complete did not:     Hopeless ──► CancelRequested
                                                                        and so on for what waits for it

The gate knows names only, whether they are of jobs or of sweeps. It is pure: equal calls give equal answers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

COMPLETED = "completed"
"""State of a job that did all its work. Any other final state means that it did not."""

_IN_WORDS = {"failed": "failed", "cancelled": "was cancelled", "pruned": "was pruned"}

MISSED = ", and had to complete first"
"""End of the reason of a job that never arrives. The reason begins with the name of the job that did not complete."""


@dataclass(frozen=True, slots=True)
class Eligible:
    """A job may arrive now."""

    name: str


@dataclass(frozen=True, slots=True)
class Hopeless:
    """A job never arrives.

    Attributes:
        reason: One line for the user.
    """

    name: str
    reason: str


Verdict = Eligible | Hopeless


@dataclass(slots=True)
class _Waiting:
    """A job behind the gate.

    Attributes:
        completed: Names that have not completed, and must.
        ended: Names that have not ended, and must.
        early: Whether its time has not come.
        held: Whether the user holds it.
    """

    completed: set[str]
    ended: set[str]
    early: bool
    held: bool = False

    @property
    def is_eligible(self) -> bool:
        return not (self.completed or self.ended or self.early or self.held)


class ArrivalGate:
    """Jobs that have been submitted and may not arrive yet."""

    def __init__(self) -> None:
        """Gate without a job."""
        self._waiting: dict[str, _Waiting] = {}
        self._behind: dict[str, dict[str, None]] = {}  # a dict serves as an ordered set

    def __contains__(self, name: str) -> bool:
        """Whether a job waits at the gate."""
        return name in self._waiting

    def submit(
        self,
        name: str,
        after: Collection[str] = (),
        after_any: Collection[str] = (),
        ended: Mapping[str, str] | None = None,
        early: bool = False,
        held: bool = False,
    ) -> list[Verdict]:
        """Add a job.

        Args:
            name: Name of the job; none of this name waits at the gate.
            after: Names of jobs and sweeps that must complete first.
            after_any: Names of jobs and sweeps that must end first, in whatever state.
            ended: Final states of those among them that have ended already, by name.
            early: Whether the job must not arrive before `passed`.
            held: Whether the job must not arrive before `release`.
        """
        ended = ended or {}
        missed = next((each for each in after if ended.get(each, COMPLETED) != COMPLETED), None)
        if missed is not None:
            return [Hopeless(name, never_arrives(missed, ended[missed])), *self.ended(name, "cancelled")]
        open_after = {each for each in after if each not in ended}
        open_any = {each for each in after_any if each not in ended}
        self._waiting[name] = _Waiting(open_after, open_any, early, held)
        for each in (*after, *after_any):
            if each not in ended:
                self._behind.setdefault(each, {})[name] = None
        return self._looked_at(name)

    def passed(self, name: str) -> list[Verdict]:
        """Note that the time of a job has come."""
        if name not in self._waiting:
            return []
        self._waiting[name].early = False
        return self._looked_at(name)

    def hold(self, name: str) -> None:
        """Keep a job at the gate until it is released."""
        self._waiting[name].held = True

    def release(self, name: str) -> list[Verdict]:
        """Hold a job at the gate no more."""
        self._waiting[name].held = False
        return self._looked_at(name)

    @property
    def held(self) -> int:
        """Number of jobs that the user holds at the gate."""
        return sum(each.held for each in self._waiting.values())

    def is_held(self, name: str) -> bool:
        """Whether a job is at the gate, and the user holds it there."""
        return name in self._waiting and self._waiting[name].held

    def ended(self, name: str, state: str) -> list[Verdict]:
        """Note that a job or sweep has ended, at the gate or beyond it.

        Args:
            state: Final state: the value of a `JobState`.
        """
        self._forget(name)
        verdicts: list[Verdict] = []
        for behind in self._behind.pop(name, {}):
            if (waiting := self._waiting.get(behind)) is None:
                continue  # another job that it waited for was hopeless, too
            if name in waiting.completed and state != COMPLETED:
                verdicts += [Hopeless(behind, never_arrives(name, state)), *self.ended(behind, "cancelled")]
                continue
            waiting.completed.discard(name)
            waiting.ended.discard(name)
            verdicts += self._looked_at(behind)
        return verdicts

    @property
    def awaited(self) -> Iterable[str]:
        """Names that a job at the gate waits for."""
        return self._behind.keys()

    def waits_for(self, name: str) -> tuple[str, ...]:
        """Names of the jobs and sweeps that a job still waits for, sorted."""
        waiting = self._waiting.get(name)
        return () if waiting is None else tuple(sorted(waiting.completed | waiting.ended))

    def _looked_at(self, name: str) -> list[Verdict]:
        if not self._waiting[name].is_eligible:
            return []
        del self._waiting[name]
        return [Eligible(name)]

    def _forget(self, name: str) -> None:
        """Take a job out of the gate, and out of the lists of what it waits for."""
        if (waiting := self._waiting.pop(name, None)) is None:
            return
        for each in waiting.completed | waiting.ended:
            behind = self._behind.get(each, {})
            behind.pop(name, None)
            if not behind:
                self._behind.pop(each, None)


def never_arrives(name: str, state: str) -> str:
    """Reason why a job never arrives that waits for one which has ended in another state than completed."""
    return f"{name} {in_words(state)}{MISSED}"


def in_words(state: str) -> str:
    """Final state of a job as the predicate of a sentence about it."""
    return _IN_WORDS.get(state, state)


def missed(reason: str) -> str:
    """Job that had to complete first, from the reason why another one never arrived; empty for any other reason."""
    return reason.partition(" ")[0] if reason.endswith(MISSED) else ""
