"""One way of bench_sweep.py as a program of its own: joblib, Optuna or Ray Tune runs the trials.

python -m scripts.bench.sweep_tools WAY TRIALS ITERATIONS LOSSES    writes the losses to the file LOSSES
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

from scripts.bench.sweep_ways import AT_ONCE, arguments

# The tools and the trial load late: a way's memory has no other tool in it.


def _with_joblib(each: Sequence[Sequence[str]]) -> list[float]:
    from joblib import Parallel, delayed

    from scripts.bench.jobs.sweep_trial import train

    return list(Parallel(n_jobs=AT_ONCE)(delayed(train)(args) for args in each))


def _with_optuna(each: Sequence[Sequence[str]]) -> list[float]:
    import optuna

    from scripts.bench.jobs.sweep_trial import train

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
        from scripts.bench.jobs.sweep_trial import train

        tune.report({"loss": train(each[config["number"]]), "number": config["number"]})

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=AT_ONCE, include_dashboard=False, log_to_driver=False)
    space = {"number": tune.grid_search(list(range(len(each))))}
    here = tune.RunConfig(storage_path=str(Path.cwd()), verbose=0)
    results = tune.Tuner(tune.with_resources(trainable, {"cpu": 1}), param_space=space, run_config=here).fit()
    found = {result.metrics["number"]: result.metrics["loss"] for result in results if result.metrics}
    ray.shutdown()
    return [found[number] for number in range(len(each))]


def main() -> None:
    """Run the trials one way, and write their losses."""
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
    main()
