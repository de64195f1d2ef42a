"""`ecoshare profile` of real services, which ecoshare makes the requests for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.devices.registry import processors
from ecoshare.jobs.load import load
from ecoshare.knowledge.profile import Profile
from ecoshare.knowledge.profile_store import ProfileStore
from tests.driver import COMPILER
from tests.planning import planned as made_plan
from tests.runtime.machine import Machine
from tests.runtime.running import job_file
from tests.runtime.test_profile import profile, saved

SERVES = """
import ecoshare
import torch

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256)).eval()

def handler(requests):
    with torch.inference_mode():
        batch = torch.stack(requests)
        for _ in range(4):  # token by token: four root calls for an answer
            batch = model(batch)
        return batch.argmax(1).tolist()

def sample(number):
    return torch.full((256,), float(number % 7))

with ecoshare.serve(handler, batch=(1, 16), sample=sample) as server:
    server.run()
"""


@pytest.mark.nightly
def test_a_service_is_measured_by_batch_size_and_a_run_knows_it(tmp_path: Path) -> None:
    (tmp_path / "serves.py").write_text(SERVES)
    done = profile(tmp_path, "serves.py", "--iterations", "40")
    assert done.returncode == 0, done.stderr
    (made,) = saved(tmp_path).values()
    one, sixteen = made.batches
    assert (one.size, sixteen.size) == (1, 16) and made.train is made.eval is None
    assert one.count >= 10 and sixteen.count >= 10
    for each in (one, sixteen):
        assert 0.0 < each.median_s <= each.p95_s <= each.p99_s
        assert each.per_request_j is not None and made.energy is not None
        assert each.per_request_j == pytest.approx(made.energy.power_w * each.mean_s / each.size, rel=0.5)
    assert one.median_s < sixteen.median_s < 16 * one.median_s, "a batch costs more than one request, and less than 16"
    assert sixteen.per_request_j is not None and one.per_request_j is not None
    assert sixteen.per_request_j < one.per_request_j
    # Memory is that of the largest batch: its activations are 16 x 1024 numbers of 4 bytes, before and after the ReLU.
    assert made.memory.parts["parameters"] == 4 * (256 * 1024 + 1024 + 1024 * 256 + 256)
    assert made.memory.ephemeral_bytes is not None and 2 * 4 * 16 * 1024 <= made.memory.ephemeral_bytes < 1 << 20
    # Were a root call an iteration, 40 of them would be the time of 10 answers.
    assert made.window.measured_s / sixteen.median_s >= 20, "an iteration is an answer"
    assert "energy/request" in done.stdout and "inference iteration" not in done.stdout
    job = {"name": "s", "script": "serves.py", "service": {"p99": "50 ms", "batch": [8, 16]}}
    loaded, store = load(job_file(tmp_path, job)), ProfileStore(tmp_path / "profiles")
    [planned] = made_plan(loaded, (processors(),), store=store).jobs
    assert planned.spec.job_class == made.job_class and planned.spec.solo is not None
    assert planned.spec.solo.longest_s == sixteen.p99_s


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("script", "what"),
    [
        (
            "ecoshare.serve(lambda _: [1 // 0], batch=(2,)).run()",
            "2 requests (numbers, since there is no `sample`): Zero",
        ),
        ("ecoshare.serve(lambda requests: requests)", "script.py ended, and no iteration was seen"),
        ("while True:\n    time.sleep(1)", "script.py waited for 30 s and did nothing, before it was measured"),
    ],
)
def test_a_service_that_cannot_be_measured_is_said_in_a_line(tmp_path: Path, script: str, what: str) -> None:
    (tmp_path / "script.py").write_text(f"import ecoshare, time, torch\n{script}\n")
    done = profile(tmp_path, "script.py")
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    [line] = [each for each in done.stderr.splitlines() if each.startswith("error: ")]
    assert what in line
    assert not saved(tmp_path)


@pytest.mark.nightly
@pytest.mark.skipif(COMPILER is None, reason="the fake driver is written in C, and there is no compiler")
def test_joules_of_a_request_are_measured_on_a_gpu(tmp_path: Path) -> None:
    """The fake GPU draws the same power all the time, so joules are in proportion to the time of a request."""
    machine = Machine(tmp_path)
    (tmp_path / "serves.py").write_text(SERVES)
    done = machine.run("profile", "serves.py", "--json")
    assert done.returncode == 0, done.stderr
    made = Profile.model_validate_json(done.stdout)
    assert made.energy is not None and made.energy.source == "measured" and made.energy.scope == "gpu"
    assert made.energy.per_eval_iteration_j is None, "an answer is no iteration"
    for each in made.batches:
        assert each.per_request_j is not None and each.energy_error is not None and each.energy_error < 0.1
        power_w = each.per_request_j * each.size / each.mean_s
        assert power_w == pytest.approx(made.energy.power_w, rel=0.1)
