"""Phases of a job: one that lasts is told, a short one is left alone, and training is told at once."""

from __future__ import annotations

from ecoshare.base.attempt import Usage
from ecoshare.base.measurement import JobPhase
from ecoshare.core.settings.phase_watch import LONG_S, UNKNOWN_S, PhaseLengths, PhaseWatch

TRAINS, EVALUATES, AWAY = JobPhase


class Watched:
    """A job that is looked at each second.

    Attributes:
        told: Phases that were told, with the time (s) since the present phase began.
    """

    def __init__(self, lengths: PhaseLengths) -> None:
        self.told: list[tuple[JobPhase, float]] = []
        self._lengths, self._watch = lengths, PhaseWatch()
        self._now_s, self._usage = 0.0, Usage()

    def does(self, phase: JobPhase, length_s: int, is_away: bool | None = None) -> None:
        for second in range(1, length_s + 1):
            self._now_s += 1.0
            trained, evaluated, held_s = self._usage.iterations, self._usage.eval_iterations, self._usage.held_s
            self._usage = Usage(
                trained + 10 * (phase is TRAINS), evaluated + 20 * (phase is EVALUATES), held_s + (phase is not AWAY)
            )
            away = phase is AWAY if is_away is None else is_away
            told = self._watch.saw(self._now_s, self._usage, away, "class", self._lengths)
            if told is not None:
                self.told.append((told, second))


def test_a_long_phase_is_told_after_a_while_and_its_next_at_once() -> None:
    job = Watched(PhaseLengths())
    for _ in range(3):
        job.does(TRAINS, 20)
        job.does(EVALUATES, 12)
    job.does(TRAINS, 1)
    assert job.told == [(EVALUATES, UNKNOWN_S), (TRAINS, 1), (EVALUATES, 1), (TRAINS, 1), (EVALUATES, 1), (TRAINS, 1)]


def test_short_phases_are_left_alone() -> None:
    job = Watched(PhaseLengths())
    for _ in range(4):
        job.does(TRAINS, 20)
        job.does(AWAY, 4)
    assert not job.told
    job.does(TRAINS, 20)
    job.does(AWAY, 30)
    assert job.told == [(AWAY, LONG_S)], "an exception is told once it is long"


def test_other_jobs_of_the_class_know_the_length() -> None:
    lengths = PhaseLengths()
    first, second = Watched(lengths), Watched(lengths)
    for job in (first, second):
        job.does(TRAINS, 5)
        job.does(AWAY, 15)
        job.does(TRAINS, 5)
    assert [first.told[0], second.told[0]] == [(AWAY, UNKNOWN_S), (AWAY, 1)]


def test_a_start_an_inference_and_a_wait_for_the_turn_are_no_phases() -> None:
    job = Watched(PhaseLengths())
    job.does(AWAY, 30)
    job.does(EVALUATES, 30)
    assert not job.told, "nothing was trained yet"
    job.does(TRAINS, 5)
    job.does(AWAY, 30, is_away=False)
    assert not job.told, "it wants the turn, or has it"
