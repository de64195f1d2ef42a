"""Measurements of jobs beside each other: none begins while their group is about to change."""

from __future__ import annotations

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.measurement import AS_FOUND
from ecoshare.core.commands import AskInterference, AskSetting, MeasureSetting
from ecoshare.core.events import Done, IterationsDone, JobExited, SettingAdvised
from tests.core.stepping import Core


def pair() -> tuple[Core, AskSetting]:
    """Two jobs that run beside each other, and the question for the setting of their packing."""
    core = Core(search=True)
    core.arrive("a1")
    core.foresee(aa=0.9)
    core.arrive("b1")
    core.foresee(ab=0.9, aa=0.9, bb=0.9)
    for name in ("a1", "b1"):
        progress(core, name)
    found = core.last(AskSetting)
    assert found is not None and found.packing == (("a",), ("b",))
    return core, found


def progress(core: Core, name: str) -> None:
    core.now_s += 10.0
    core.tell(IterationsDone(core.now_s, name, Usage(iterations=100, held_s=10.0, span_s=10.0)))


def third(core: Core) -> None:
    """A third job is started, and is still on its way."""
    core.is_slow = True
    core.arrive("c1")
    core.foresee(ab=0.9, ac=0.9, bc=0.9, aa=0.9, bb=0.9, cc=0.9)


def test_nothing_is_measured_while_a_job_is_on_its_way() -> None:
    """If it failed, that job would begin in the middle of the measurement, and slow the others."""
    core, asked = pair()
    third(core)
    core.tell(SettingAdvised(core.now_s, asked.id, AS_FOUND, False))
    assert core.last(MeasureSetting) is None
    core.begin()
    progress(core, "c1")
    again = core.last(AskSetting)
    assert again is not None and again.packing == (("a",), ("b",), ("c",))


def test_a_setting_that_came_into_force_too_late_is_not_measured() -> None:
    core, asked = pair()
    core.tell(SettingAdvised(core.now_s, asked.id, (("gpu_clock", 900.0),), False))
    applies = core.commands[-1]
    third(core)
    core.tell(Done(core.now_s, applies.id))
    assert core.last(MeasureSetting) is None


def test_a_group_is_not_measured_until_the_adviser_has_answered() -> None:
    """The answer may change the group, and a measurement holds it for seconds."""
    core = Core(profile=True)
    for name in ("a1", "b1", "c1"):
        core.arrive(name)
        core.foresee(ab=0.9, ac=0.9, bc=0.9, aa=0.9, bb=0.9, cc=0.9)
    progress(core, "c1")
    core.commands.clear()
    core.tell(JobExited(core.now_s, "c1", 1, Outcome.COMPLETED, 0, "", Usage(iterations=100, held_s=10.0)))
    for name in ("a1", "b1"):
        progress(core, name)
    assert core.last(AskInterference) is not None and core.last(MeasureSetting) is None
    core.foresee(ab=0.9, aa=0.9, bb=0.9)
    measured = core.last(MeasureSetting)
    assert measured is not None and measured.jobs == ("a1", "b1")
