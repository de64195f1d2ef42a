"""Distance of the split of energy from the truth of a device with power that is not additive in its jobs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.driver import COMPILER

ROOT = Path(__file__).parents[2]


@pytest.mark.nightly
@pytest.mark.skipif(COMPILER is None, reason="the fake driver is compiled, and there is no C compiler")
def test_the_split_is_near_the_shapley_value_and_nearer_than_what_is_simpler() -> None:
    script = ROOT / "scripts" / "bench_measure.py"
    done = subprocess.run(
        [sys.executable, str(script), "--quick", "--json"], capture_output=True, text=True, check=True
    )
    figures = {each["name"]: each for each in json.loads(done.stdout)["figures"]}
    ours = figures["error of ours, median"], figures["error of ours, p95"]
    assert all(each["met"] for each in ours), ours
    for other in ("in proportion to joules alone", "by utilisation", "equal"):
        assert figures["error of ours, p95"]["value"] < figures[f"error of {other}, p95"]["value"], other
