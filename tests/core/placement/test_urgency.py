"""Two jobs with limits that slow each other too much run alternately: the more urgent one runs."""

from __future__ import annotations

from itertools import pairwise

from ecoshare.base.attempt import Usage
from ecoshare.core.events import IterationsDone
from tests.core.stepping import Core

ITERATION_S, LIMIT, LENGTH = 0.1, 2.3, 1000


def hurt() -> Core:
    """Two jobs that were started together before their speeds beside each other were known."""
    core = Core()
    for name in ("a1", "b1"):
        core.arrive(name, slowdown_limit=LIMIT, iterations=LENGTH)
        core.foresee(ab=0.95)
    assert {job.level for job in core.scheduler.jobs.values()} == {0}
    core.arrive("c1", gib=7.0)  # does not fit beside them
    core.foresee(ab=0.3)
    return core


def run(core: Core, until_s: float) -> list[str]:
    """Name of the job that ran in each second; a job behind it reports nothing."""
    ran = []
    done = dict.fromkeys(("a1", "b1"), 0)
    while core.now_s < until_s:
        (name,) = [each for each in done if core.scheduler.jobs[each].level == 0]
        ran.append(name)
        core.now_s += 1.0
        done[name] += round(1.0 / ITERATION_S)
        core.tell(IterationsDone(core.now_s, name, Usage(iterations=done[name], span_s=core.now_s - 0.5)))
    return ran


def test_one_at_a_time_runs_and_both_keep_up() -> None:
    core = hurt()
    ran = run(core, 180.0)
    changes = sum(one != other for one, other in pairwise(ran))
    assert 1 <= changes <= 20, f"in turn, but not for ever: {ran}"
    assert all(ran.count(name) / len(ran) > 1.0 / LIMIT - 0.1 for name in ("a1", "b1"))


def test_a_change_of_places_is_no_reason_for_another_one() -> None:
    """The delay of a job since its last report counts the same if it runs and if it waits."""
    core = hurt()
    core.now_s = 80.0
    core.tell(IterationsDone(core.now_s, "a1", Usage(iterations=300, span_s=79.0)))
    assert [core.scheduler.jobs[name].level for name in ("a1", "b1")] == [1, 0], "b1 has had nothing"
    core.now_s = 160.0  # no job has reported meanwhile
    found = []
    for name in ("c2", "c3", "c4"):
        core.arrive(name, gib=7.0)
        found.append([core.scheduler.jobs[each].level for each in ("a1", "b1")])
    assert found == [[0, 1]] * 3
