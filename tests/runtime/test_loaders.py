"""Jobs with data loaders in worker processes make progress beside jobs without, and the reverse."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from ecoshare.lane.hooks import _is_there
from tests.runtime.running import alone, run
from tests.warm import wait_for

LOADS = """
import sys, time
from pathlib import Path
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

steps, fetch_ms, work = map(int, sys.argv[1:4])

class Slow(Dataset):
    def __len__(self):
        return steps

    def __getitem__(self, index):
        time.sleep(fetch_ms / 1000)
        return torch.full((128,), index / steps)

torch.set_num_threads(1)
torch.manual_seed(1)
x, model = torch.randn(128, 128), nn.Linear(128, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for index, batch in enumerate(DataLoader(Slow(), num_workers=2)):
    for _ in range(work):
        x = (x + batch).sigmoid()
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(index, f"{loss.item():.9g}")
    if index == 10:
        began_s = time.monotonic()
Path(sys.argv[4]).touch()
print(1e3 * (time.monotonic() - began_s) / (steps - 11))
"""

TRAINS = """
import sys
from pathlib import Path
import torch
from torch import nn

torch.set_num_threads(1)
x, model = torch.randn(128, 128), nn.Linear(128, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
steps = 0
while not Path(sys.argv[2]).exists():
    for _ in range(int(sys.argv[1])):
        x = (x + x).sigmoid()
    model(x).square().mean().backward()
    optimizer.step()
    steps += 1
"""


@pytest.mark.nightly
def test_a_job_with_loader_workers_is_not_starved_by_one_without(tmp_path: Path) -> None:
    """Before, the other job got a whole quantum at each fetch, and did 20 iterations for each of the loader's."""
    steps, done = 120, str(tmp_path / "done")
    loads, trains = tmp_path / "loads.py", tmp_path / "trains.py"
    loads.write_text(LOADS)
    trains.write_text(TRAINS)
    args = [str(steps), "20", "400", done]  # a batch every 10 ms, and 5 ms of work with it
    code, apart = alone(loads, tuple(args), tmp_path)
    Path(done).unlink()
    jobs = [
        {"name": "loads", "script": "loads.py", "args": args},
        {"name": "trains", "script": "trains.py", "args": ["400", done]},
    ]
    shared = run(tmp_path, *jobs, options=("--policy", "fair", "--jobs-per-lane", "2"))
    assert code == shared.code == 0
    *losses, alone_ms = apart.splitlines()
    *same, shared_ms = shared.log("loads").splitlines()
    assert same == losses and len(losses) == steps
    assert float(shared_ms) < 4 * float(alone_ms)
    assert steps / 4 < shared.job("trains")["iterations"] < 5 * steps
    assert max(shared.job(name)["longest_wait_s"] for name in ("loads", "trains")) < 0.5


class Waits(Dataset[torch.Tensor]):
    """Data set with batches that take this time to make."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(1.5)
        return torch.ones(1)


@pytest.mark.slow
@pytest.mark.parametrize("pin", [False, True])
def test_whether_a_batch_is_there_is_seen_without_fetching_it(pin: bool) -> None:
    if pin and not torch.accelerator.is_available():
        pytest.skip("pinning memory needs an accelerator")
    batches = iter(DataLoader(Waits(), num_workers=1, pin_memory=pin))
    assert not _is_there(batches)
    for _ in range(2):
        wait_for(partial(_is_there, batches))
        began_s = time.monotonic()
        next(batches)
        assert time.monotonic() - began_s < 1.2, "it was not there"
    assert _is_there(batches), "the end is told at once"
    with pytest.raises(StopIteration):
        next(batches)


def test_what_is_not_as_known_is_not_there() -> None:
    assert not _is_there(iter(DataLoader(Waits())))
    assert not _is_there(object())
