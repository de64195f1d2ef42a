"""The examples have the same losses to the last bit alone and in every way of sharing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rounds import rounds
from tests.runtime.running import EXAMPLES, run, settled

ARGS = {
    "mlp": ("--epochs", "1"),
    "cnn": ("--epochs", "1"),
    "transformer": ("--steps", "6"),
    "vae": ("--epochs", "1"),
    "gan": ("--steps", "24"),
    "gnn": ("--epochs", "8"),
}

WAYS = [(lanes, places) for places in (1, 2, 4) for lanes in (1, 2)]
FEW = ("fair", "pack", "priority")
"""Policies that run all examples, in two of the ways each."""

OTHERS = ("energy", "fluid", "gandiva", "max-min", "shockwave", "tiresias")
"""One policy of each other strategy of placement, with every third example. The rest differ in their order only."""

ALL = [(FEW[number % len(FEW)], *way) for number, way in enumerate(WAYS)]
ALL += [(policy, *WAYS[number]) for number, policy in enumerate(OTHERS)]


pytestmark = pytest.mark.timeout(400)
"""Time limit for the scripts alone: they take a minute on a quiet machine, and many times that beside other loads."""


@pytest.fixture(scope="module")
def alone_logs() -> dict[str, bytes]:
    # One at a time: spinning threads of two scripts on the same cores are many times slower than both in turn.
    return {name: settled(EXAMPLES / f"{name}.py", args, EXAMPLES) for name, args in ARGS.items()}


def share(folder: Path, policy: str, lanes: int, places: int, alone_logs: dict[str, bytes]) -> None:
    names = list(ARGS) if policy in FEW else list(ARGS)[OTHERS.index(policy) % 3 :: 3]
    jobs = [
        {
            "name": name,
            "script": str(EXAMPLES / f"{name}.py"),
            "args": list(args),
            # Later jobs are more urgent, and come while the others run: they preempt them.
            "priority": number,
            "arrival": f"{0.2 * number} s",
            "iterations": 100 - 10 * number,
        }
        for number, (name, args) in enumerate(ARGS.items())
        if name in names
    ]
    options = ("--policy", policy, "--lanes", str(lanes), "--jobs-per-lane", str(places))
    done = run(folder, *jobs, options=options)
    assert done.code == 0, done.stderr
    for name in names:
        stdout = alone_logs[name]
        assert done.log(name) == stdout, f"{name} gives other losses shared ({policy}, {lanes} lanes, {places} places)"
        assert len(stdout.splitlines()) > 1


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "lanes", "places"), ALL)
def test_examples_give_the_same_bits(
    tmp_path: Path, policy: str, lanes: int, places: int, alone_logs: dict[str, bytes]
) -> None:
    share(tmp_path, policy, lanes, places, alone_logs)


@pytest.mark.slow
def test_no_run_of_many_differs(tmp_path: Path) -> None:
    """Two threads' first call of a function of MKL goes wrong about once in a hundred if the script makes it."""
    script, args = EXAMPLES / "gnn.py", ("--epochs", "2")
    count = rounds(15, nightly=200)
    jobs: list[dict[str, Any]] = [
        {"name": f"gnn-{number}", "script": str(script), "args": list(args)} for number in range(count)
    ]
    done = run(tmp_path, *jobs, options=("--policy", "fair", "--lanes", "1", "--jobs-per-lane", "2"))
    assert done.code == 0, done.stderr
    assert {done.log(job["name"]) for job in jobs} == {settled(script, args, EXAMPLES)}
