"""Callbacks of the real trainers on random data, with RAPL counters in files of the kernel's layout.

The training script adds joules to the counter with each batch, so the logged joules are known.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from tests.runtime.running import run

TRANSFORMERS = """
import json, pathlib, sys, torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from ecoshare.integrations.transformers import EnergyCallback

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels):
        spend()
        return {"loss": (self.layer(x).squeeze(-1) - labels).square().mean()}

class Seen(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **more):
        LOGS.append(dict(logs))

data = [{"x": torch.randn(4), "labels": torch.tensor(0.0)} for _ in range(16)]
args = TrainingArguments(
    "out", per_device_train_batch_size=4, num_train_epochs=2, logging_steps=2, eval_strategy="epoch",
    use_cpu=True, report_to="none", disable_tqdm=True, save_strategy="no",
)
trainer = Trainer(Model(), args, train_dataset=data, eval_dataset=data, callbacks=[Seen()])
EnergyCallback().attach(trainer)
trainer.train()
assert [each.get("device_energy_j") for each in trainer.state.log_history] == [
    each.get("device_energy_j") for each in LOGS
]
"""

LIGHTNING = """
import json, pathlib, sys, torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import Logger
from ecoshare.integrations.lightning import EnergyCallback

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        spend()
        return self.layer(batch).square().mean()
    def validation_step(self, batch, index):
        self.log("eval_loss", self.layer(batch).square().mean())
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

class Seen(Logger):
    name, version = "seen", 0
    def log_metrics(self, metrics, step=None):
        LOGS.append(dict(metrics))
    def log_hyperparams(self, *params, **more):
        pass

data = torch.utils.data.DataLoader(torch.randn(16, 4), batch_size=4)
trainer = Trainer(
    max_epochs=2, accelerator="cpu", logger=Seen(), callbacks=[EnergyCallback()], log_every_n_steps=2,
    enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False,
)
trainer.fit(Model(), data, data)
"""

BEFORE = """
import time
LOGS = []
def spend():
    time.sleep(0.01)
    if counter.exists():
        counter.write_text(str(int(counter.read_text()) + 3_000_000))
import pathlib, sys
counter = pathlib.Path(sys.argv[1])
"""
AFTER = "\nprint(json.dumps(LOGS))\n"


@pytest.fixture(params=["transformers", "lightning"])
def script(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Script that trains with the callback for one library, for 8 steps of at least 3 J."""
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed: pip install 'ecoshare[{request.param}]'")
    path = tmp_path / f"{request.param}_script.py"
    path.write_text(BEFORE + {"transformers": TRANSFORMERS, "lightning": LIGHTNING}[request.param] + AFTER)
    return path


def logs_of(output: bytes) -> list[dict[str, float]]:
    logs: list[dict[str, float]] = json.loads(output.decode().splitlines()[-1])
    return logs


@pytest.mark.nightly
def test_joules_are_in_the_trainers_log_and_evaluations_in_the_sweep(script: Path, tmp_path: Path) -> None:
    zone = tmp_path / "sys" / "class" / "powercap" / "intel-rapl:0"
    zone.mkdir(parents=True)
    for name, content in (("name", "package-0"), ("max_energy_range_uj", "1000000000"), ("energy_uj", "5000000")):
        (zone / name).write_text(f"{content}\n")
    job = {"name": "a", "script": str(script), "args": [str(zone / "energy_uj")], "cwd": str(tmp_path)}
    done = run(tmp_path, {**job, "env": {"ECOSHARE_SYSFS": str(tmp_path / "sys")}})
    assert done.code == 0, done.log("a", "stderr").decode()
    logs = [each for each in logs_of(done.log("a")) if "device_energy_j" in each]
    joules = [each["device_energy_j"] for each in logs]
    per_step = [each["device_energy_j_per_step"] for each in logs if "device_energy_j_per_step" in each]
    assert joules[0] == 6.0 and joules == sorted(joules) and joules[-1] >= 24.0, joules
    assert per_step[0] == 3.0 and min(per_step) >= 3.0, per_step
    assert done.log("a", "stderr").count(b"ecoshare: device_energy_j is measured, of the whole device cpu") == 1
    reports = (done.folder / "jobs" / "a").glob("reports*.jsonl")
    reported = [json.loads(line) for path in reports for line in path.read_text().splitlines()]
    assert len(reported) == 2 and all("eval_loss" in each for each in reported)


@pytest.mark.nightly
def test_without_a_counter_no_energy_is_logged_and_that_is_said_once(script: Path, tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    job = {"name": "a", "script": str(script), "args": [str(tmp_path / "no-counter")], "cwd": str(tmp_path)}
    done = run(tmp_path, {**job, "env": {"ECOSHARE_SYSFS": str(tmp_path / "sys")}})
    assert done.code == 0, done.log("a", "stderr").decode()
    assert not [each for each in logs_of(done.log("a")) if "device_energy_j" in each]
    assert done.log("a", "stderr").count(b"ecoshare: no energy is logged") == 1
