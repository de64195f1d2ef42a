"""Searches over phases: each measurement counts for the jobs and the phases that were measured, whatever came later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ecoshare.base.attempt import Outcome
from ecoshare.base.class_profile import MemoryDemand, Solo
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.measurement import Goal, JobPhase, Measurement, MeasurementStatus, Packing, Setting, class_in
from ecoshare.core.commands import AskSetting, MeasureSetting
from ecoshare.core.events import Config, SettingMeasured
from ecoshare.knowledge.advisers.setting_adviser import TunerAdviser
from ecoshare.knowledge.advisers.setting_search import knob_of, space_of
from ecoshare.testing.virtual_driver import ScriptedJob, VirtualDriver

GIB, TOP_MHZ = 1 << 30, 1980.0
TRAINS, EVALUATES = JobPhase.TRAINS, JobPhase.EVALUATES
CLOCKS = tuple(float(clock) for clock in range(600, 1980, 60))
MEASURE_S = 0.4


def iteration_s(phase: JobPhase, part: float) -> float:
    """Training computes; an evaluation waits for memory, and is twice as fast."""
    return 0.1 * (0.95 / part + 0.05) if phase is TRAINS else 0.05 * (0.1 / part + 0.9)


@dataclass
class Searched(VirtualDriver):
    """Driver with the real adviser: its jobs have the times of their present phases.

    Attributes:
        told: Packing and judgement of each measurement: time / time at the default setting, by job.
        most_s: Most time (s) of an iteration of each job of a measurement, by its limit.
    """

    told: list[tuple[Packing, Mapping[str, float]]] = field(default_factory=list)
    most_s: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        space = space_of([knob_of("gpu_clock", CLOCKS, {"unlocked": TOP_MHZ})], lambda _setting: True)
        self.adviser = TunerAdviser(
            lambda: space,
            lambda: {"gpu_clock": "unlocked"},
            lambda _job: Solo(),
            Goal("energy", 1.1, 12),
            told=lambda own, _found, judged: self.told.append((own.packing, judged.interference if judged else {})),
            class_of=lambda name: name[0],
        )
        self.advises = self._advised

    def _advised(self, ask: AskSetting) -> tuple[Setting, bool]:
        advice = self.adviser.answer(ask)
        assert "failed" not in advice.note, advice.note
        return advice.setting, advice.over

    def measure_setting(self, command: MeasureSetting, now_s: float) -> None:
        clock = dict(command.setting).get("gpu_clock", TOP_MHZ)
        part = float(clock) / TOP_MHZ
        times_s = {name: iteration_s(self.core.jobs[name].phase, part) for name in command.jobs}
        if command.setting:
            self.most_s.append(self.adviser.most_s(command.jobs, command.evaluating))
        found = Measurement(
            command.setting,
            MeasurementStatus.MEASURED,
            power_w=60 + 230 * part**2.4,
            joules=1.0,
            duration_s=MEASURE_S,
            times_s=times_s,
            shares={name: 1 / len(times_s) for name in times_s},
            rates={name: 1 / (len(times_s) * each_s) for name, each_s in times_s.items()},
        )
        self._later(MEASURE_S, partial(SettingMeasured, command=command.id, measurement=found))


def searched(*jobs: tuple[str, float, float], **options: Any) -> Searched:
    """Jobs by name, length (s) and arrival (s); the first letter is the class."""
    known = {
        name: (
            JobSpec(name, name[0], memory=MemoryDemand(GIB), profiled=True),
            ScriptedJob(arrival_s, ((length_s, Outcome.COMPLETED),)),
        )
        for name, length_s, arrival_s in jobs
    }
    config = Config("fair", places_per_lane=8, profile=True, search=True)
    driver = Searched(config, (Device("cuda:0", "here", 8 * GIB),), known, **options)
    driver.run()
    return driver


def test_a_search_goes_on_when_its_first_job_has_ended_in_an_evaluation() -> None:
    driver = searched(("a0", 2.6, 0.0), ("a1", 30.0, 2.7), phases=((2.2, "a0", EVALUATES),))
    own = driver.adviser.searches[(("a",),)]
    assert own.ending and own.search is not None and own.search.best != {"gpu_clock": "unlocked"}
    assert set(driver.most_s[-1]) == {"a1"}


def test_two_jobs_of_a_class_that_swap_their_phases_are_told_apart() -> None:
    phases = ((0.5, "a1", EVALUATES), (3.0, "a0", EVALUATES), (3.01, "a1", TRAINS))
    driver = searched(("a0", 60.0, 0.0), ("a1", 60.0, 0.0), phases=phases)
    packing = (("a", class_in("a", EVALUATES)),)
    own = driver.adviser.searches[packing]
    assert own.classes == {"a0": "a", "a1": class_in("a", EVALUATES)} and own.ending
    judged = [each for of, each in driver.told if of == packing and each]
    assert len(judged) > 3 and all(each["a1"] <= 1.02 and each["a0"] >= 0.99 for each in judged)
    assert own.search is not None and own.search.best != {"gpu_clock": "unlocked"}


def test_a_search_goes_on_in_a_segment_that_has_forgotten_its_first_job() -> None:
    driver = searched(("a0", 2.6, 0.0), ("a1", 30.0, 2.7), segments_s=(2.65,))
    assert driver.segments == 2
    assert driver.adviser.searches[(("a",),)].ending
