"""How bench_sweep.py runs the same trials: with joblib, Optuna, Ray Tune, and through ecoshare.

Each way is a program of its own, so that its memory is that of its processes, and its time has everything in it: the
start of the tool, the import of torch, and the end. A way whose tool is not installed is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarking import ROOT

TRIAL = ROOT / "scripts" / "sweep_trial.py"
AT_ONCE = 2
"""Trials at a time: the cores of the machine that the figures are from."""

_LOOK_S = 0.25


@dataclass(frozen=True)
class Spent:
    """What a way took.

    Attributes:
        losses: Of the trials, in the order of their arguments.
        peak_bytes: Largest sum of the proportional set sizes of all its processes.
    """

    wall_s: float
    peak_bytes: int
    losses: tuple[float, ...]


def arguments(trials: int, iterations: int) -> list[list[str]]:
    """Of each trial: three models by learning rates."""
    from sweep_trial import MODELS

    return [
        ["--model", MODELS[n % 3], "--lr", repr(0.001 * (1 + n // 3)), "--iterations", str(iterations)]
        for n in range(trials)
    ]


def needs(way: str) -> str:
    """What is not installed; empty where nothing is missing."""
    package = {"joblib": "joblib", "optuna": "optuna", "ray": "ray"}.get(way, "")
    return package if package and find_spec(package) is None else ""


def run(way: str, trials: int, iterations: int) -> Spent:
    """Run all trials one way.

    Raises:
        RuntimeError: It fails, or some trial's loss is missing.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if way.startswith("ecoshare"):
            line = _ecoshare(folder, way, trials, iterations)
        else:
            line = [sys.executable, __file__, way, str(trials), str(iterations), str(folder / "losses.json")]
        began_s = time.monotonic()
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=folder)
        peak = _Peak(process.pid)
        _, said = process.communicate()
        wall_s = time.monotonic() - began_s
        if process.returncode:
            raise RuntimeError(f"{way}: {said[-2000:]}")
        losses = (
            _told(folder, trials) if way.startswith("ecoshare") else json.loads((folder / "losses.json").read_text())
        )
        return Spent(wall_s, peak.bytes(), tuple(losses))


def _ecoshare(folder: Path, way: str, trials: int, iterations: int) -> list[str]:
    jobs = []
    for number, each in enumerate(arguments(min(trials, 3), iterations)):
        rates = [args[3] for args in arguments(trials, iterations)[number::3]]
        sweep = {"grid": {"lr": rates}, "metric": "loss={:f}"}
        own = {"name": each[1], "script": str(TRIAL), "args": [*each[:2], "--lr", "{lr}", *each[4:]], "sweep": sweep}
        jobs.append({**own, "isolation": "lane"} if way.endswith("fused") else own)
    return in_lanes(folder, jobs)


def in_lanes(folder: Path, jobs: list[dict[str, Any]]) -> list[str]:
    """The command line that runs these jobs from `folder`, `AT_ONCE` at a time."""
    (folder / "jobs.yaml").write_text(json.dumps({"version": 1, "jobs": jobs}))
    line = [
        sys.executable,
        "-m",
        "ecoshare",
        "run",
        str(folder / "jobs.yaml"),
        "--device",
        "cpu",
        "--no-report",
        "--json",
    ]
    # One more in each lane than can run, so that a lane need not wait for the controller.
    return [*line, "--no-profiles", "--policy", "pack", "--lanes", str(AT_ONCE), "--jobs-per-lane", "2"]


def _told(folder: Path, trials: int) -> list[float]:
    summary = json.loads((folder / "runs" / "latest" / "summary.json").read_text())
    value = {(job["class"], job["values"]["lr"]): job["value"] for job in summary["jobs"]}
    assert len(value) == len(summary["jobs"]) == trials, "a trial is missing"
    classes = [
        next(job["class"] for job in summary["jobs"] if job["sweep"] == args[1]) for args in arguments(trials, 1)
    ]
    return [value[name, args[3]] for name, args in zip(classes, arguments(trials, 1), strict=True)]


class _Peak:
    """Watches the memory of a process and all that it has started."""

    def __init__(self, pid: int) -> None:
        self._pid, self._most = pid, 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        from ecoshare.lane import processes

        while Path(f"/proc/{self._pid}").exists():
            family = processes.family(self._pid)
            for each in os.scandir("/proc"):  # Ray's workers are nobody's children
                if each.name.isdigit() and b"ray::" in _line_of(each.name):
                    family += processes.family(int(each.name))
            self._most = max(self._most, processes.proportional_bytes(list(dict.fromkeys(family))))
            time.sleep(_LOOK_S)

    def bytes(self) -> int:
        """The largest sum that was seen."""
        self._thread.join()
        return self._most


def _line_of(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


# What follows runs in the program of a way.


def _with_joblib(each: Sequence[Sequence[str]]) -> list[float]:
    from joblib import Parallel, delayed

    from sweep_trial import train

    return list(Parallel(n_jobs=AT_ONCE)(delayed(train)(args) for args in each))


def _with_optuna(each: Sequence[Sequence[str]]) -> list[float]:
    import optuna

    from sweep_trial import train

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    losses = [0.0] * len(each)

    def objective(trial: optuna.Trial) -> float:
        losses[trial.number] = train(each[trial.number])
        return losses[trial.number]

    optuna.create_study().optimize(objective, n_trials=len(each), n_jobs=AT_ONCE)
    return losses


def _with_ray(each: Sequence[Sequence[str]]) -> list[float]:
    import ray
    from ray import tune

    def trainable(config: dict[str, int]) -> None:
        sys.path.insert(0, str(TRIAL.parent))
        from sweep_trial import train

        tune.report({"loss": train(each[config["number"]]), "number": config["number"]})

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=AT_ONCE, include_dashboard=False, log_to_driver=False)
    space = {"number": tune.grid_search(list(range(len(each))))}
    here = tune.RunConfig(storage_path=str(Path.cwd()), verbose=0)
    results = tune.Tuner(tune.with_resources(trainable, {"cpu": 1}), param_space=space, run_config=here).fit()
    found = {result.metrics["number"]: result.metrics["loss"] for result in results if result.metrics}
    ray.shutdown()
    return [found[number] for number in range(len(each))]


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=("joblib", "optuna", "ray"))
    parser.add_argument("trials", type=int)
    parser.add_argument("iterations", type=int)
    parser.add_argument("losses", type=Path)
    options = parser.parse_args()
    ways = {"joblib": _with_joblib, "optuna": _with_optuna, "ray": _with_ray}
    losses = ways[options.way](arguments(options.trials, options.iterations))
    options.losses.write_text(json.dumps(losses))


if __name__ == "__main__":
    _main()
