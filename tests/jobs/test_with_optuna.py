"""Optuna's ask and tell by trial numbers."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from ecoshare.jobs import with_optuna
from ecoshare.jobs.trial_sampler import Choice, Range
from ecoshare.jobs.with_optuna import OptunaSampler

SPACE: dict[str, Choice | Range] = {
    "x": Range(-4.0, 4.0),
    "n": Range(1, 8, whole=True),
    "kind": Choice(("good", "bad")),
}


def opened(path: Path, sampler: str = "TPESampler", pruner: str | None = None) -> OptunaSampler:
    chosen = (pruner, {"n_startup_trials": 2}) if pruner is not None else None
    return OptunaSampler.open(path, "s", SPACE, 60, False, (sampler, {}), chosen, seed=1)


def loss(values: dict[str, str]) -> float:
    return (float(values["x"]) - 1.0) ** 2 + (3.0 if values["kind"] == "bad" else 0.0)


@pytest.mark.nightly
def test_it_learns(tmp_path: Path) -> None:
    """If it failed, the reports of trials would not reach the study."""
    sampler = opened(tmp_path / "study.log")
    losses = []
    for number in range(60):
        values = dict(sampler.draw(number) or ())
        losses.append(loss(values))
        sampler.ended(number, losses[-1], pruned=False)
    assert sampler.draw(60) is None
    assert sum(losses[40:]) / 20 < 0.5 * sum(losses[:20]) / 20
    assert min(losses) == sampler.study.best_value


def test_a_study_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    first = opened(tmp_path / "study.log")
    for number in range(5):
        first.draw(number)
    drawn = first.draw(4)
    first.ended(0, 1.0, pruned=False)
    first.ended(1, None, pruned=False)
    first.ended(2, 3.0, pruned=True)
    again = opened(tmp_path / "study.log")
    assert again.draw(4) == drawn, "the trial that was under way has other values now"
    again.ended(0, 7.0, pruned=False)  # told twice, by a session that did not know
    again.ended(4, 2.0, pruned=False)
    states = [trial.state for trial in again.study.trials]
    done, failed, pruned, runs = TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED, TrialState.RUNNING
    assert states == [done, failed, pruned, runs, done]
    assert again.study.trials[0].value == 1.0
    again.draw(5)
    assert len(again.study.trials) == 6


def test_its_pruner_ends_trials(tmp_path: Path) -> None:
    sampler = opened(tmp_path / "study.log", pruner="MedianPruner")
    for number in range(6):
        sampler.draw(number)
    for number in range(4):
        assert not sampler.reported(number, 1, 1.0)
        sampler.ended(number, 1.0, pruned=False)
    assert not sampler.reported(4, 1, 0.5)
    assert "MedianPruner" in sampler.reported(5, 1, 9.0)
    assert sampler.reported(5, 1, 9.0), "a trial that was started again reports a step once more"


def test_a_session_that_goes_on_draws_other_trials(tmp_path: Path) -> None:
    """Else each resumed session would begin the same search again."""
    drawn = []
    for session in range(3):
        sampler = opened(tmp_path / "study.log", "RandomSampler")
        drawn += [dict(sampler.draw(number) or ())["x"] for number in range(3 * session, 3 * session + 3)]
    assert len(set(drawn)) == 9
    assert drawn[:3] == [dict(opened(tmp_path / "b.log", "RandomSampler").draw(0) or ())["x"], *drawn[1:3]]


def test_a_trial_that_was_cut_off_while_it_was_asked_for_is_completed(tmp_path: Path) -> None:
    sampler = opened(tmp_path / "study.log")
    sampler.study.ask().suggest_float("x", -4.0, 4.0)
    values = dict(opened(tmp_path / "study.log").draw(0) or ())
    assert list(values) == ["x", "n", "kind"]
    assert values["x"] == repr(sampler.study.trials[0].params["x"])


def test_a_lock_that_a_killed_session_has_left_is_removed(tmp_path: Path) -> None:
    """If it failed, the next session would wait for the dead one."""
    opened(tmp_path / "study.log").draw(0)
    (tmp_path / "study.log.lock").symlink_to("nowhere")
    assert opened(tmp_path / "study.log").draw(1)


def test_a_sampler_that_has_tried_everything_has_no_more(tmp_path: Path) -> None:
    space = {"kind": Choice(("a", "b", "c"))}
    sampler = OptunaSampler.open(tmp_path / "s", "s", space, 9, False, ("BruteForceSampler", {}), None, 0)
    drawn: list[str] = []
    while (values := sampler.draw(len(drawn))) is not None:
        drawn.append(dict(values)["kind"])
        sampler.ended(len(drawn) - 1, 1.0, pruned=False)
    assert sorted(drawn) == ["a", "b", "c"]
    assert [trial.state for trial in sampler.study.trials] == [TrialState.COMPLETE] * 3


def test_names_that_optuna_does_not_have() -> None:
    with_optuna.check("samplers", "TPESampler")
    with_optuna.check("pruners", "HyperbandPruner")
    with pytest.raises(ValueError, match="has no sampler 'TPSampler'; did you mean 'TPESampler'"):
        with_optuna.check("samplers", "TPSampler")
    with pytest.raises(ValueError, match="has no pruner 'BasePruner'"):
        with_optuna.check("pruners", "BasePruner")


def test_options_that_a_sampler_does_not_take(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"optuna's TPESampler: .*nonsense"):
        OptunaSampler.open(tmp_path / "a", "s", SPACE, 9, False, ("TPESampler", {"nonsense": 1}), None, 0)


def test_optuna_is_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened(tmp_path / "study.log").draw(0)
    assert optuna.logging.get_verbosity() == optuna.logging.ERROR
    assert capsys.readouterr() == ("", "")
