"""Valid and wrong values under `sweep:`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.errors import InvalidJobFile
from ecoshare.jobs import sweep
from ecoshare.jobs.load import load
from ecoshare.jobs.schema import JobConfig
from ecoshare.jobs.sweep import Sweep, filled, sweep_of, trial_name, trial_number
from ecoshare.jobs.trial_sampler import Choice, Range
from tests.jobs.conftest import WrongFile


def loaded(folder: Path, sweep: str, args: str = "[]") -> JobConfig:
    (folder / "jobs.yaml").write_text(
        f"version: 1\njobs:\n- name: a\n  script: train.py\n  args: {args}\n  sweep:\n" + sweep
    )
    return load(folder / "jobs.yaml").jobs[0]


def test_a_grid_keeps_its_words(folder: Path) -> None:
    """Else a script would see 0.001 where its owner has written 1e-3."""
    sweep = loaded(folder, "    grid: {lr: [1e-3, 0.01], kind: [relu, null, 007, yes]}\n").sweep
    assert sweep is not None
    assert sweep.grid == {"lr": Choice(("1e-3", "0.01")), "kind": Choice(("relu", "null", "007", "yes"))}
    assert sweep.count == 8 and sweep.space.keys() == {"lr", "kind"}


def test_draws_take_ranges(folder: Path) -> None:
    space = "{a: {uniform: [0, 1]}, b: {log: [1e-4, 1e-1]}, c: {int: [1, 8]}, d: {log_int: [16, 256]}, e: [x, y]}"
    sweep = loaded(folder, f"    random: {space}\n    trials: 20\n").sweep
    assert sweep is not None and sweep.random is not None
    wanted = [Range(0, 1), Range(1e-4, 0.1, True), Range(1, 8, whole=True), Range(16, 256, True, True)]
    assert list(sweep.random.values()) == [*wanted, Choice(("x", "y"))]
    assert sweep.count == 20


def test_optuna_is_named_with_its_options(folder: Path) -> None:
    sweep = loaded(
        folder,
        "    optuna:\n"
        "      space: {lr: {log: [1e-4, 1e-1]}}\n"
        "      sampler: {TPESampler: {multivariate: true, n_startup_trials: 5, weights: null}}\n"
        "      pruner: HyperbandPruner\n"
        "    trials: 9\n    metric: 'loss={:f}'\n    goal: maximize\n    target: 0.5\n",
    ).sweep
    assert sweep is not None and sweep.optuna is not None
    assert sweep.optuna.sampler == ("TPESampler", {"multivariate": True, "n_startup_trials": 5, "weights": None})
    assert sweep.optuna.pruner == ("HyperbandPruner", {})
    assert (sweep.goal, sweep.target) == ("maximize", 0.5)


def test_a_rule_in_a_word_or_with_its_numbers(folder: Path) -> None:
    base = "    grid: {lr: [1, 2]}\n    metric: loss\n"
    short, long = (
        loaded(folder, base + f"    stop: {stop}\n").sweep for stop in ("asha", "{rule: asha, reduction: 4, grace: 2}")
    )
    assert short is not None and short.stop is not None and long is not None and long.stop is not None
    assert (short.stop.rule, short.stop.grace, short.stop.reduction) == ("asha", 1, 3)
    assert (long.stop.rule, long.stop.grace, long.stop.reduction) == ("asha", 2, 4)


def test_values_stand_where_their_names_do() -> None:
    assert filled("--lr={lr} {other} {", {"lr": "0.1"}) == "--lr=0.1 {other} {"
    assert (trial_name("a.b", 7, 300), trial_name("a", 12_345, 20_000)) == ("a.b.0007", "a.12345")
    assert (sweep_of("a.b.0007"), sweep_of("a.b"), trial_number("a.b.0007")) == ("a.b", "", 7)


def test_a_sweep_of_python_code() -> None:
    sweep = Sweep.model_validate({"grid": {"lr": [0.1, 1]}, "metric": "loss"})
    assert sweep.grid == {"lr": Choice(("0.1", "1"))}


@pytest.mark.parametrize(
    ("pattern", "line", "value"),
    [
        ("val_loss={:f}", "epoch 3: val_loss=0.25, acc=0.9", 0.25),
        ("val_loss={:f}", "val_loss=1e-05", 1e-5),
        ("val_loss={}", "val_loss= -3", -3.0),
        ("loss: {:f}", "loss:   4.", 4.0),
        ("loss={:f}", "val_loss=9 loss=1", 1.0),
        ("loss={:f}", "val_loss=9", None),
        ("acc {:f}%", "Acc 97.5%", 97.5),
        ("acc {:f}%", "acc 97.5", None),
        ("loss={:f}", "loss=nan", float("nan")),
        ("loss={:f}", "loss=-inf", float("-inf")),
        ("loss={:f}", "loss=nanny", None),
        ("loss={:f}", "loss=1 loss=2", 2.0),
        ("time={:f}s", "time=1.5s", 1.5),
        ("took {:f}ms a step", "took 12ms a step", 12.0),
        ("time={:f}s", "time=1.5sec", None),
        ("loss={:f}", "loss=1,234.5", None),
        ("loss={:f}", "loss=0.25,acc=0.9", 0.25),
        ("loss={:f}", "loss=1.2.3", None),
        ("loss={:f}.", "the loss=0.93.", 0.93),
        ("loss={:f}.", "the loss=93.", 93.0),
        ("{:f} correct", "12 of 20, 60.5 correct", 60.5),
        ("{:f} correct", "1234 correct", 1234.0),
        ("loss={:f}", "loss=\u0131nf", None),
        ("loss={:f}", "loss=\u0663", None),
        ("loss={:f}", "loss=\n1", None),
    ],
)
def test_a_number_in_what_is_printed(pattern: str, line: str, value: float | None) -> None:
    for text in (line, f"\n{line}\n\n"):
        found = sweep.read_metric(pattern).values(text)
        assert len(found) == (value is not None)
        assert value is None or found == [value] or (found[0] != found[0] and value != value)


def test_each_line_gives_its_last_number() -> None:
    text = "loss=1 loss=2\r\nnothing\nloss=3\rloss=4, loss=5"
    assert sweep.read_metric("loss={:f}").values(text) == [2.0, 3.0, 5.0]


@pytest.mark.parametrize("pattern", ["loss={:f}", "loss {:f} of", "{:f} correct", "{:f}s", "a  b {:f}", " {:f}%"])
@pytest.mark.parametrize("hostile", ["loss={}", "loss={}x", "{}x", "a{}", "{}"])
def test_no_line_takes_longer_than_its_length(pattern: str, hostile: str) -> None:
    """If it failed, the controller would stand still: 12,000 blanks took 8 s, and 65,536 took 308 s."""
    for many in (" ", "1", ".", "1.", "-", "e1", "a", "loss=1 "):
        assert len(sweep.read_metric(pattern).values(hostile.format(many * 40_000))) <= 1


def test_wrong_sweeps(wrong_file: WrongFile, folder: Path) -> None:
    """If it failed, hundreds of trials would run with values that their owner did not mean."""
    Path("jobs.yaml").write_text(wrong_file.text)
    with pytest.raises(InvalidJobFile) as raised:
        load(Path("jobs.yaml"))
    assert str(raised.value).splitlines() == [f"jobs.yaml:{line}" for line in wrong_file.mistakes]


CASES = r"""
=== none, or several ways
version: 1
jobs:
- {name: a, script: train.py, sweep: {}}
- {name: b, script: train.py, sweep: {grid: {lr: [1]}, random: {lr: [1]}}}
- {name: c, script: train.py, sweep: [lr]}
- {name: d, script: train.py, sweep: {gird: {lr: [1]}}}
--- mistakes
3:38: jobs[0].sweep: a sweep has one of 'grid', 'random' and 'optuna'
4:38: jobs[1].sweep: a sweep has one of 'grid', 'random' and 'optuna', not grid and random
5:38: jobs[2].sweep: expected a mapping of keys and values, got a list
6:39: jobs[3].sweep.gird: unknown key 'gird'; did you mean 'grid'?
=== spaces
version: 1
jobs:
- name: a
  script: train.py
  sweep:
    trials: 3
    random:
      a: 3
      b: []
      c: {log: [0, 1]}
      d: {uniform: [2, 1]}
      e: {int: [1, 2.5]}
      f: {normal: [0, 1]}
      g: {int: [1]}
      h: {log: [a, b]}
- {name: b, script: train.py, sweep: {grid: {lr: {log: [1, 2]}}}}
- {name: c, script: train.py, sweep: {grid: {}}}
- {name: d, script: train.py, sweep: {grid: {'a b': [1]}}}
--- mistakes
8:10: jobs[0].sweep.random.a: {DIMENSION} '3'
9:10: jobs[0].sweep.random.b: expected a list such as [0.1, 0.01], got an empty list
10:10: jobs[0].sweep.random.c: a logarithmic range begins above 0, not at 0
11:10: jobs[0].sweep.random.d: the lowest value, 2, is above the highest, 1
12:10: jobs[0].sweep.random.e: expected a whole number, got '2.5'
13:10: jobs[0].sweep.random.f: {DIMENSION} a mapping
14:10: jobs[0].sweep.random.g: expected the lowest and the highest value, such as int: [1, 8], got a list
15:10: jobs[0].sweep.random.h: expected a number, got 'a'
16:50: jobs[1].sweep.grid.lr: expected a list such as [0.1, 0.01], got a mapping
17:45: jobs[2].sweep.grid: expected a mapping of names and values such as {lr: [0.1, 0.01]}, got an empty mapping
18:45: jobs[3].sweep.grid: expected a name such as lr or weight-decay, got 'a b'
=== what is missing
version: 1
jobs:
- {name: a, script: train.py, sweep: {random: {lr: [1]}}}
- {name: b, script: train.py, sweep: {grid: {lr: [1]}, stop: asha}}
- {name: c, script: train.py, sweep: {grid: {lr: [1]}, target: 3}}
- {name: d, script: train.py, sweep: {optuna: {space: {lr: [1]}}, trials: 3}}
- {name: e, script: train.py, sweep: {optuna: {space: {lr: [1]}, pruner: NopPruner}, trials: 3, metric: x, stop: asha}}
- {name: f, script: train.py, sweep: {optuna: {sampler: TPESampler}, trials: 3, metric: x}}
--- mistakes
3:38: jobs[0].sweep: the key 'trials' is missing: how many of 'random'?
4:38: jobs[1].sweep: the key 'metric' is missing: 'stop' goes by it
5:38: jobs[2].sweep: the key 'metric' is missing: 'target' goes by it
6:38: jobs[3].sweep: the key 'metric' is missing: 'optuna' goes by it
7:38: jobs[4].sweep: a sweep has 'stop' or a pruner of optuna, not both
8:47: jobs[5].sweep.optuna: the key 'space' is missing
=== names of others
version: 1
jobs:
- {name: a, script: train.py, sweep: {optuna: {space: {lr: [1]}, sampler: TPSampler}, trials: 3, metric: x}}
- {name: b, script: train.py, sweep: {grid: {lr: [1]}, metric: 'loss = ?', stop: ahsa, goal: min}}
- {name: c, script: train.py, sweep: {grid: {lr: [1]}, metric: x, stop: {rule: asha, reduction: 1, grase: 2}}}
- {name: d, script: train.py, args: ['{lrr}', '{lr}'], sweep: {grid: {lr: [1]}}}
- {name: d.0003, script: train.py}
--- mistakes
3:75: jobs[0].sweep.optuna.sampler: {OPTUNA} has no sampler 'TPSampler'; did you mean 'TPESampler'?
4:64: jobs[1].sweep.metric: {METRIC} 'loss = ?'
4:82: jobs[1].sweep.stop.rule: expected 'asha' or 'median' or 'halving', got 'ahsa'
4:94: jobs[1].sweep.goal: expected 'minimize' or 'maximize', got 'min'
5:97: jobs[2].sweep.stop.reduction: expected at least 2, got '1'
5:100: jobs[2].sweep.stop.grase: unknown key 'grase'; did you mean 'grace'?
6:38: jobs[3].args[0]: '{lrr}' is nothing that the sweep varies; did you mean '{lr}'?
7:10: jobs[4].name: the name 'd.0003' is that of a trial of jobs[3]
"""
