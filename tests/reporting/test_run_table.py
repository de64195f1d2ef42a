"""Table at the end of a run, and the sentences below it."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from ecoshare.base.attempt import Outcome
from ecoshare.record.accounts.run_energy import RunEnergy
from ecoshare.record.results.costs_and_savings import WindowSummary
from ecoshare.record.results.energy_summary import DeviceEnergy
from ecoshare.record.results.run_summary import RunSummary, summarise
from ecoshare.record.results.sweep_summary import SweepSummary
from ecoshare.record.run_history import RunHistory
from ecoshare.reporting.figures import say
from ecoshare.reporting.tables.job_table import details_of
from ecoshare.reporting.tables.result_tables import sweep_words
from ecoshare.reporting.tables.run_table import (
    beside_the_gpu,
    in_parts,
    iterations,
    kept_lanes,
    measured,
    print_summary,
    totals,
)
from tests.record.test_summary import OPENED, plan, story
from tests.reporting.made_run import run

NAMES = ("transformer", "convolutional-autoencoder-lr-0.01")


def summary(*states: str) -> RunSummary:
    """Run with one job in each state."""
    of: dict[str, Any] = {f"{name}{number}": None for number, name in enumerate(NAMES[:1] * len(states))}
    found = summarise(plan(**of), RunHistory([OPENED]), RunEnergy(), "ecoshare-runs/r")
    jobs = tuple(
        replace(job, state=state, jct_s=86.2 if state == "completed" else None)
        for job, state in zip(found.jobs, states, strict=True)
    )
    return replace(found, jobs=jobs, makespan_s=86.2, mean_jct_s=86.2 if "completed" in states else None)


def window(error: str | None, lost_s: float | None = 0.2) -> WindowSummary:
    return WindowSummary("a", "c", 0.0, error=error, lost_s=None if error else lost_s)


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (("completed", "completed"), "makespan 1 min 26 s, mean JCT 1 min 26 s, energy not known"),
        (("completed", "failed"), "makespan 1 min 26 s, mean JCT 1 min 26 s of 1 completed job, energy not known"),
        (("completed", "completed", "failed"), "mean JCT 1 min 26 s of 2 completed jobs,"),
        (("failed",), "makespan 1 min 26 s, no job completed, energy not known"),
    ],
)
def test_totals_say_how_many_jobs_they_are_of(states: tuple[str, ...], said: str) -> None:
    assert said in totals(summary(*states))


def test_where_nothing_ended_there_is_no_makespan() -> None:
    assert (
        totals(summarise(plan(a=None), RunHistory([OPENED]), RunEnergy(), "r")) == "no job completed, energy not known"
    )


@pytest.mark.parametrize(
    ("windows", "said"),
    [
        ([None], "measured 1 new class, which cost 200 ms beyond the work done meanwhile"),
        (
            [None, None, "no"],
            "measured 2 new classes, which cost 400 ms beyond the work done meanwhile; 1 window came to nothing",
        ),
        (["no"], "no new class was measured: 1 window came to nothing"),
        (["no", "no"], "no new class was measured: 2 windows came to nothing"),
    ],
)
def test_measuring_is_told_with_what_it_cost(windows: list[str | None], said: str) -> None:
    assert measured(replace(summary("completed"), windows=tuple(map(window, windows)))) == said


def test_a_cost_that_is_not_known_is_said() -> None:
    told = measured(replace(summary("completed"), windows=(window(None, None),)))
    assert told == "measured 1 new class; the cost is not known"


@pytest.mark.parametrize("width", [60, 80, 200, None])
def test_names_of_jobs_are_whole_at_any_width(width: int | None) -> None:
    """Before, `transformer` was wrapped into `transform` and `er`."""
    history = RunHistory(story(NAMES[0], Outcome.COMPLETED))
    found = summarise(plan(**dict.fromkeys(NAMES)), history, RunEnergy(), "ecoshare-runs/r")
    console = Console(file=io.StringIO(), width=width, force_terminal=width is not None, color_system=None, _environ={})
    print_summary(found, console)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    table = lines[: lines.index("")]
    assert [line.split()[0] for line in table] == ["job", *NAMES]
    assert max(map(len, lines)) <= (width or 1000)
    assert ("queued" in table[0]) == (width not in (60, 80))


@pytest.mark.parametrize(
    ("jobs", "iteration_s", "name", "advised"),
    [(8, 0.004, "cpu", True), (3, 0.004, "cpu", False), (8, 0.1, "cpu", False), (8, 0.004, "cuda:0", False)],
)
def test_small_models_may_have_parts_of_the_processors(jobs: int, iteration_s: float, name: str, advised: bool) -> None:
    found = summary(*["completed"] * jobs)
    own = tuple(replace(job, iterations=100, held_s=100 * iteration_s) for job in found.jobs)
    device = replace(found.devices[0], fields={**found.devices[0].fields, "name": name, "cores": 2})
    words = in_parts(replace(found, jobs=own, devices=(device,)))
    assert ("iterations of 4 ms" in words and "`--device cpu/2`" in words) is advised


def test_what_gave_the_joules_is_said_where_it_is_news() -> None:
    about = "2 cores of 0.74 W at rest; no RAPL counters"
    found = replace(summary("completed"), energy=DeviceEnergy(9.0, "modelled", "cpu", about=about), idle_power_w=1.0)
    assert totals(found).endswith(f"({about}; told once, `ecoshare doctor` tells it again)")
    assert totals(found, with_meter=False).endswith("energy 9 J modelled of which idle 0 J"), (
        "the source is always said"
    )


def test_a_sentence_moves_no_cursor() -> None:
    """Names in the table come from files of other people."""
    console = Console(file=io.StringIO(), width=80)
    say(console, "no job is of class \x1b[2J\x07, and there is none")
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "no job is of class \\x1b[2J\\x07, and there is none\n"


def test_jobs_that_never_used_their_gpu_are_named() -> None:
    """If it failed, a script that fell back to the processors would be praised for the joules of an idle GPU."""
    jobs = [
        replace(job, name=name, iterations=iterations, handovers=handovers, devices=(device,))
        for job, (name, iterations, handovers, device) in zip(
            summary(*4 * ["completed"]).jobs,
            (("a", 9, 0, "cuda:0"), ("b", 9, 3, "cuda:0"), ("c", 0, 0, "cuda:0"), ("d", 9, 0, "cpu")),
            strict=True,
        )
    ]
    found = replace(summary("completed"), jobs=tuple(jobs))
    assert beside_the_gpu(found).startswith("a never used the GPU and did all work on the processors")
    assert not beside_the_gpu(replace(found, jobs=tuple(jobs[1:])))
    shown = io.StringIO()
    print_summary(found, Console(file=shown, width=200), with_meter=True)
    assert "a never used the GPU and did all work" in shown.getvalue()


def test_jobs_that_kept_their_lanes_are_named_with_the_reason() -> None:
    """If it failed, 0 iterations of a launcher would read as if it had done nothing."""
    found = summary("completed", "completed", "completed")
    why = (None, "torchrun starts processes that use the device", "torchrun starts processes that use the device")
    jobs = tuple(
        replace(job, name=name, keeps_lane=each) for name, job, each in zip("abc", found.jobs, why, strict=True)
    )
    found = replace(found, jobs=jobs)
    (line,) = kept_lanes(found)
    assert line == (
        "b and c kept their lanes to their ends: torchrun starts processes that use the device; iterations of child "
        "processes are not seen"
    )
    assert [iterations(job) for job in found.jobs] == ["0", "not seen", "not seen"]
    assert iterations(replace(found.jobs[1], iterations=3)) == "3", "its own ones are seen"
    shown = io.StringIO()
    print_summary(found, Console(file=shown, width=200))
    assert line in shown.getvalue()


def test_iterations_that_are_steps_of_optimizers_are_called_so() -> None:
    job = replace(run(jobs=1).summary.jobs[0], iterations=600, eval_iterations=2, by_steps=True)
    assert iterations(job) == "600 optimizer steps +2 eval"
    cells = details_of(replace(job, energy_per_iteration_j=0.25))
    assert cells["iterations"] == "600 optimizer steps"
    assert cells["per iteration"] == "250 mJ attributed an optimizer step"


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("val={:f}", "no line that its trials printed matches 'val={:f}'"),
        ("val", "none of its trials called ecoshare.report(val=...)"),
        (None, ""),
    ],
)
def test_a_sweep_tells_that_its_metric_was_never_seen(metric: str | None, words: str) -> None:
    sweep = SweepSummary("s", "grid", metric=metric, states={"completed": 2})
    assert "\n".join(sweep_words(sweep)[1:]).strip() == words
