"""Trainables of Ray Tune for tests; Ray's workers import this module."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ray import tune


def _train(seed: int, iterations: int, each_s: float, log: Path | None = None) -> Iterator[float]:
    """Train a small model, and write to `log` when each iteration used the device."""
    import torch

    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    spans = []
    for _ in range(iterations):
        inputs = torch.randn(32, 16)
        outputs = model(inputs)
        began_s = time.monotonic()  # any wait for the turn is over: it is where the model is called
        time.sleep(each_s)
        loss = (outputs - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        spans.append((began_s, time.monotonic()))
        if log is not None and len(spans) % 10 == 0:
            log.write_text(json.dumps(spans))
        yield loss.item()


def loss(seed: int, iterations: int) -> float:
    """Last loss of such a training without Ray."""
    return list(_train(seed, iterations, 0.0))[-1]


def reports(config: dict[str, Any]) -> None:
    """Report every twenty iterations; `ends` says how the trial ends after the first report."""
    log = Path(config["logs"], f"{config['seed']}.json") if "logs" in config else None
    steps = config.get("iterations", 60)
    for done, loss in enumerate(_train(config["seed"], steps, config.get("each_s", 0.0), log), start=1):
        if done == 30 and config.get("ends") == "raises":
            raise ArithmeticError("the trial has failed")
        if done == 30 and config.get("ends") == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if done % 20 == 0:
            tune.report({"loss": loss, "pid": os.getpid()})


def returns(config: dict[str, Any]) -> dict[str, float]:
    """Report once, by the returned value."""
    return {"loss": list(_train(config["seed"], 20, 0.0))[-1]}


def yields(config: dict[str, Any]) -> Iterator[dict[str, float]]:
    """Report by the yielded values."""
    for done, loss in enumerate(_train(config["seed"], 40, 0.0), start=1):
        if done % 20 == 0:
            yield {"loss": loss}


class Stepwise(tune.Trainable):  # type: ignore[misc]
    """Trainable class with two steps of twenty iterations."""

    def setup(self, config: dict[str, Any]) -> None:
        self._losses = _train(config["seed"], 40, 0.0)

    def step(self) -> dict[str, Any]:
        loss = [next(self._losses) for _ in range(20)][-1]
        return {"loss": loss, "pid": os.getpid(), "done": self.iteration == 1}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"iteration": self.iteration}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True


def resumes(config: dict[str, Any]) -> None:
    """Resume from the checkpoint, and report the number of processors; `results` reports in all.

    The trial begins when `together` trials have met in the folder `meets`. A file there gets the number at each step:
    Ray's own table of results loses the steps before a pause if the pause comes before the table was copied.
    Before each step a trial with `outlasts` waits up to 1 s for those trials: each must have that many lines there.
    """
    import tempfile

    checkpoint = tune.get_checkpoint()
    done = 0
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            done = int(Path(folder, "done").read_text())
    own = Path(config["meets"], str(config["seed"]))
    own.touch()
    while len(list(Path(config["meets"]).iterdir())) < config["together"]:
        time.sleep(0.01)
    context = tune.get_context()
    width = context.get_trial_resources().required_resources["CPU"]
    while done < config["results"]:
        time.sleep(config["each_s"])
        latest_s = time.monotonic() + 1.0
        while time.monotonic() < latest_s and not all(
            len(Path(config["meets"], seed).read_text().splitlines()) >= lines
            for seed, lines in config["outlasts"].items()
        ):
            time.sleep(0.05)
        done += 1
        with own.open("a") as file:
            print(width, file=file)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "done").write_text(str(done))
            tune.report({"width": width, "done_so_far": done}, checkpoint=tune.Checkpoint.from_directory(folder))
