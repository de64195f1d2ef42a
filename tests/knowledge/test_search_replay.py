"""Searches on measured tables with known answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.knowledge.advisers.measured_table import Table, read
from ecoshare.knowledge.advisers.search_replay import GOOD, SearchReplay
from tests.knowledge.invented import COLUMNS, write_table

DEFAULT = {"limit": 250.0, "batch": 64.0}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return read(write_table(tmp_path / "t.csv", {"a": 0.3, "b": 0.6, "c": 0.7}), [COLUMNS], ["network=b"])


def by_hand(table: Table) -> dict[tuple[float | str, ...], tuple[float, float]]:
    """Energy and slowdown of every row, computed from its numbers."""
    default = table.at(DEFAULT)
    joules = default.power_w * default.times_s["epoch_s"]
    return {
        point: (row.power_w * row.times_s["epoch_s"] / joules, row.times_s["epoch_s"] / default.times_s["epoch_s"])
        for point, row in table.rows.items()
    }


@pytest.mark.slow
def test_the_verdict_is_that_of_the_table(table: Table) -> None:
    replay = SearchReplay(table, DEFAULT, noise=0.0)
    trials = list(replay.measurements())
    verdict, known = replay.verdict(), by_hand(table)
    feasible = {point: energy for point, (energy, slow) in known.items() if slow <= 1.1}
    optimum = min(feasible, key=lambda point: feasible[point])
    assert 1 < len(feasible) < len(known), "the limit decides nothing"
    assert tuple(verdict.optimum.values()) == optimum
    assert verdict.optimum_judged.energy == pytest.approx(feasible[optimum])
    tried = [known[tuple(trial.requested.values())] for trial in trials]
    assert verdict.violations == sum(slow > 1.1 for _, slow in tried) == replay.search.violations
    assert verdict.cost == pytest.approx(sum(energy for energy, _ in tried))
    good = [n for n, (energy, slow) in enumerate(tried, 1) if slow <= 1.1 and energy <= GOOD * feasible[optimum]]
    assert verdict.trials_until_good == (good[0] if good else None)
    chosen = min((energy, slow) for energy, slow in tried if slow <= 1.1)
    assert verdict.chosen_judged is not None and verdict.chosen_judged.energy == pytest.approx(chosen[0])
    assert verdict.regret == pytest.approx(chosen[0] / feasible[optimum] - 1.0)
    assert verdict.regret is not None and verdict.regret < 0.05, (
        "on a table made by a formula much like the prior's the search finds little"
    )


@pytest.mark.nightly
def test_without_noise_a_trial_shows_the_row(table: Table) -> None:
    replay = SearchReplay(table, DEFAULT, noise=0.0)
    known = by_hand(table)
    for trial in replay.measurements():
        energy, slow = known[tuple(trial.requested.values())]
        assert trial.score is not None and trial.score.energy == pytest.approx(energy)
        assert trial.interference == {"epoch_s": pytest.approx(slow)} and trial.feasible == (slow <= 1.1)


@pytest.mark.nightly
def test_noise_is_on_the_trials_alone_and_equal_seeds_are_equal(table: Table) -> None:
    one, again, other = (SearchReplay(table, DEFAULT, seed=seed, noise=0.05) for seed in (1, 1, 2))
    assert list(one.measurements()) == list(again.measurements()) != list(other.measurements())
    first = one.search.measurements[0]
    assert first.requested == DEFAULT and first.score is not None
    assert first.score.energy == pytest.approx(1.0), "the first trial is what the work costs alone"
    assert first.found.power_w != table.at(DEFAULT).power_w
    assert one.verdict().default_judged.energy == pytest.approx(1.0)
    assert one.truth() == other.truth()


def test_the_best_static_setting_is_what_the_others_like(table: Table) -> None:
    static = SearchReplay(table, DEFAULT, noise=0.0).verdict().static
    assert static is not None and static.workloads == 2
    alone = [Table(table.file, table.knobs, table.times, rows) for rows in table.others]
    known = [by_hand(each) for each in alone]
    sums = {
        point: known[0][point][0] * known[1][point][0]
        for point in table.rows
        if all(each[point][1] <= 1.1 for each in known)
    }
    assert tuple(static.setting.values()) == min(sums, key=lambda point: sums[point])


def test_a_table_of_one_workload_knows_no_static_setting(tmp_path: Path) -> None:
    table = read(write_table(tmp_path / "t.csv"), [COLUMNS])
    assert SearchReplay(table, DEFAULT).verdict().static is None


@pytest.mark.slow
def test_only_rows_that_are_there_are_tried(table: Table) -> None:
    replay = SearchReplay(table, DEFAULT, budget=40, noise=0.3)
    assert len(replay.space) == 27
    for trial in replay.measurements():
        assert (trial.requested["limit"], trial.requested["batch"]) != (250.0, 32.0)
    with pytest.raises(LookupError):
        replay.measure({"limit": 250.0, "batch": 32.0})


def test_several_jobs_each_keep_the_limit(tmp_path: Path) -> None:
    lines = ["clock,a,b,w"]
    for clock in range(800, 1500, 100):
        lines.append(f"{clock},{1400 / clock},{0.9 + 0.1 * 1400 / clock},{60 + 190 * (clock / 1400) ** 3}")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    table = read(tmp_path / "t.csv", ["core_clock=clock,time=a,time=b,power=w"])
    replay = SearchReplay(table, {"clock": 1400.0}, noise=0.0)
    assert all(set(trial.interference) == {"a", "b"} for trial in replay.measurements())
    verdict = replay.verdict()
    assert verdict.optimum == {"clock": 1300.0}, "the mean may keep the limit, each job must"
    assert verdict.cost is None
