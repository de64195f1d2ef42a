"""Time of the tuner itself: `ask`, `tell`, a new tuner, its import, and parts of botorch. For bench_tuner.py."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.optim.optimize import optimize_acqf_discrete

from scripts.bench.benchmarking import ROOT, Figure, median
from scripts.bench.tuner_searches import MOST
from tuner import ConstrainedTuner, Evaluation, Knob, Limit, Role, Setting, Space, energy
from tuner.tuner import one_thread

ROUNDS = 3
SIZE = "2,000 settings, 50 trials, 3 jobs"

_JOBS = ("a", "b", "c")
_IMPORTED = "processor time, after torch, gpytorch and numpy"
_IMPORT = "import gpytorch, numpy, time; began = time.process_time(); import tuner; print(time.process_time() - began)"
_LATENCY = """
import json
from scripts.bench.tuner import latency
print(json.dumps({each.name: each.value for each in latency()}))
"""


def costs(before: Path | None, is_quick: bool) -> list[Figure]:
    """Figures with one thread.

    Args:
        before: Folder of the tuner before, to compare with; None to leave it out.
        is_quick: Leave out botorch's class, and import the tuner once.
    """
    began_s = time.perf_counter()
    tuned = _tuner()
    made_s = time.perf_counter() - began_s
    draw = np.random.default_rng(0)
    places = [len(tuned.space) - 1, *draw.permutation(len(tuned.space) - 1)[:48]]
    settings = [tuned.space.settings[place] for place in places]
    with tempfile.TemporaryDirectory() as folder:  # all at once, since each tell takes its time
        path = Path(folder) / "trials.json"
        trials = [Evaluation(each, _observed(each, draw)).as_dict() for each in settings[:-ROUNDS]]
        path.write_text(json.dumps({"schema_version": 1, "default": tuned.default, "trials": trials}))
        tuned.load(path)
    told_s, asked_s = [], []
    for setting in settings[-ROUNDS:]:
        observed = _observed(setting, draw)
        began_s = time.perf_counter()
        tuned.tell(setting, observed)
        told_s.append(time.perf_counter() - began_s)
        began_s = time.perf_counter()
        tuned.ask()
        asked_s.append(time.perf_counter() - began_s)
    tell_s = median(told_s)
    figures = [
        Figure("ask", 1000.0 * median(asked_s), "ms", "<= 250", SIZE),
        Figure("tell", 1000.0 * tell_s, "ms", "<= 400", SIZE),
        Figure("a new tuner", 1000.0 * made_s, "ms", "", "2,000 settings, 3 jobs: draws the physical prior"),
        Figure("import of the tuner", _import_s(ROOT, is_quick), "s", "", _IMPORTED),
    ]
    if not is_quick:
        slower = _own_class_s(tuned) / tell_s
        figures.append(Figure("botorch's class of qLogNEI over a whole tell", slower, "x", "", SIZE))
    if before is not None:
        then = json.loads(_python(before, _LATENCY))
        figures += [
            Figure("import of the tuner before", _import_s(before, is_quick), "s", "", "the same"),
            Figure("tell over tell before", 1000.0 * tell_s / then["tell"], "x", "", SIZE),
        ]
    return figures


def _own_class_s(tuned: ConstrainedTuner) -> float:
    """Seconds of botorch's `qLogNoisyExpectedImprovement` over the grid: each setting beside the whole baseline."""
    acquisition = qLogNoisyExpectedImprovement(
        tuned.model, tuned.baseline, objective=tuned.objective, constraints=tuned.constraints, prune_baseline=False
    )
    began_s = time.perf_counter()
    with one_thread():
        optimize_acqf_discrete(acquisition, q=1, choices=tuned.model.points, max_batch_size=50)
    return time.perf_counter() - began_s


def _tuner() -> ConstrainedTuner:
    """A tuner without trials, with limits on three jobs; the default is the last setting."""
    cores, limits = np.linspace(300.0, 1500.0, 100).tolist(), np.linspace(100.0, 300.0, 20).tolist()
    space = Space.product(Knob("core", tuple(cores), Role.CORE_CLOCK), Knob("limit", tuple(limits), Role.POWER_LIMIT))
    default = {"core": 1500.0, "limit": 300.0}
    return ConstrainedTuner(space, energy(dict.fromkeys(_JOBS, 100.0)), [Limit(name, MOST) for name in _JOBS], default)


def _observed(setting: Setting, draw: np.random.Generator) -> dict[str, float]:
    clock, limit = float(setting["core"]) / 1500.0, float(setting["limit"])
    values = {"power_w": min(limit, 60.0 + 220.0 * clock**2)}
    values |= {name: clock ** -(0.3 * share) for share, name in enumerate(_JOBS, start=1)}
    return {name: value * math.exp(0.02 * draw.standard_normal()) for name, value in values.items()}


def _import_s(folder: Path, is_quick: bool) -> float:
    """Processor seconds of an import, the median of three processes, or of one."""
    return median([float(_python(folder, _IMPORT)) for _ in range(1 if is_quick else ROUNDS)])


def _python(folder: Path, code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout
