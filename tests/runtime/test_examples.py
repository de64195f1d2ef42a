"""The examples have the same losses to the last bit alone and in every way of sharing."""

from __future__ import annotations

import functools
import runpy
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.rounds import rounds
from tests.runtime.running import EXAMPLES, alone, run, settled

ARGS = {
    "mlp": ("--epochs", "1"),
    "cnn": ("--epochs", "1"),
    "transformer": ("--steps", "6"),
    "vae": ("--epochs", "1"),
    "gan": ("--steps", "24"),
    "gnn": ("--epochs", "8"),
}

pytestmark = pytest.mark.timeout(400)
"""Time limit for the scripts alone: they take a minute on a quiet machine, and many times that beside other loads."""


@functools.cache
def printed_alone(name: str) -> bytes:
    return settled(EXAMPLES / f"{name}.py", ARGS[name], EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lanes", "places", "names"),
    [
        (2, 2, ("mlp", "transformer", "gan")),
        pytest.param(2, 2, ARGS, marks=pytest.mark.nightly),
        pytest.param(1, 4, ARGS, marks=pytest.mark.nightly),
    ],
    ids=["some", "all", "one lane"],
)
def test_examples_give_the_same_bits(tmp_path: Path, lanes: int, places: int, names: Collection[str]) -> None:
    """A result is that of the lane, whatever the policy: one is enough, in which later jobs preempt the others."""
    # One at a time: spinning threads of two scripts on the same cores are many times slower than both in turn.
    alone_logs = {name: printed_alone(name) for name in names}
    jobs = [
        {
            "name": name,
            "script": str(EXAMPLES / f"{name}.py"),
            "args": list(ARGS[name]),
            "priority": number,
            "arrival": f"{0.2 * number} s",
            "iterations": 100 - 10 * number,
        }
        for number, name in enumerate(names)
    ]
    options = ("--policy", "priority", "--lanes", str(lanes), "--jobs-per-lane", str(places))
    done = run(tmp_path, *jobs, options=options)
    assert done.code == 0, done.stderr
    for name, stdout in alone_logs.items():
        assert done.log(name) == stdout, f"{name} gives other losses shared ({lanes} lanes, {places} places)"
        assert len(stdout.splitlines()) > 1


@pytest.mark.nightly
def test_no_run_of_many_differs(tmp_path: Path) -> None:
    """Two threads' first call of a function of MKL goes wrong about once in a hundred if the script makes it."""
    script, args = EXAMPLES / "gnn.py", ("--epochs", "2")
    count = rounds(15, nightly=30)
    jobs: list[dict[str, Any]] = [
        {"name": f"gnn-{number}", "script": str(script), "args": list(args)} for number in range(count)
    ]
    done = run(tmp_path, *jobs, options=("--policy", "fair", "--lanes", "1", "--jobs-per-lane", "2"))
    assert done.code == 0, done.stderr
    assert {done.log(job["name"]) for job in jobs} == {settled(script, args, EXAMPLES)}


@pytest.mark.nightly
def test_jobs_that_wait_for_data_give_the_same_bits(tmp_path: Path) -> None:
    """Embeddings come from another process, features from the disk. A cache of rows changes no loss."""
    dlrm, disk = EXAMPLES / "dlrm.py", EXAMPLES / "gnn_disk.py"
    args = {
        "embeddings": (dlrm, ("--steps", "40", "--delay", "0.01")),
        "cached": (dlrm, ("--steps", "40", "--delay", "0.01", "--lookahead", "4")),
        "graph": (disk, ("--epochs", "1", "--nodes", "20000", "--batches", "1", "--folder", str(tmp_path))),
    }
    expected = {name: alone(script, own, EXAMPLES)[1] for name, (script, own) in args.items()}
    losses = [[line for line in expected[name].splitlines() if b"step" in line] for name in ("embeddings", "cached")]
    assert losses[0] == losses[1] and len(losses[0]) == 20
    fetched = [int(expected[name].split()[-3]) for name in ("embeddings", "cached")]
    assert fetched[1] < 0.4 * fetched[0], "and it saves most of the rows"
    jobs = [{"name": name, "script": str(script), "args": [*own]} for name, (script, own) in args.items()]
    done = run(tmp_path, *jobs, options=("--policy", "fair", "--lanes", "2", "--jobs-per-lane", "2"))
    assert done.code == 0, done.stderr
    assert {name: done.log(name) for name in args} == expected


@pytest.mark.nightly
def test_partitions_meet_with_one_change_at_a_time() -> None:
    """Each partition is read a few times only, and the buffer never holds more than it may."""
    order = runpy.run_path(str(EXAMPLES / "gnn_disk.py"))["order"]
    for seed in range(5):
        buffer, met, steps = set[int](), set[tuple[int, int]](), order(np.random.default_rng(seed))
        for comes, goes in steps:
            assert comes not in buffer and (goes is None or goes in buffer)
            buffer = {each for each in buffer if each != goes} | {comes}
            assert len(buffer) <= 4
            met |= {(one, other) for one in buffer for other in buffer if one < other}
        assert len(met) == 16 * 15 // 2 and len(steps) <= 50
