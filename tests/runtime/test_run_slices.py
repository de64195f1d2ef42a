"""Two runs on the same processors take turns in slices, and each job does what it does alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from ecoshare.core.events import SliceChanged
from ecoshare.record import event_log
from ecoshare.record.run_folder import RunFolder
from tests.warm import Started, ecoshare, wait_for

TRAINS = """
import os, sys, time, torch
torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
times = open(sys.argv[3], "w") if len(sys.argv) > 3 else None
last = sys.argv[4] if len(sys.argv) > 4 else ""
step = 0
while step < int(sys.argv[2]) or (last and not os.path.exists(last)):
    step += 1
    end_s = time.thread_time() + 0.01
    while time.thread_time() < end_s:
        pass
    loss = model(torch.randn(16, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if times is not None:
        print(time.monotonic(), file=times, flush=True)
print(loss.item())
"""


def job_file(folder: Path, name: str, seeds: tuple[int, ...], steps: int, lasts: int = 0) -> str:
    """Job file in a new folder; the job with the seed `lasts` goes on until there is a file `over`."""
    folder.mkdir()
    (folder / "trains.py").write_text(TRAINS)
    jobs = [
        {"name": f"{name}{seed}", "script": "trains.py", "args": [seed, steps, str(folder / f"times{seed}"), *more]}
        for seed in seeds
        for more in [[str(folder / "over")] if seed == lasts else []]
    ]
    (folder / "jobs.yaml").write_text(json.dumps({"version": 1, "jobs": jobs}))
    return "jobs.yaml"


def alone(folder: Path, seed: int, steps: int) -> bytes:
    words = [sys.executable, str(folder / "trains.py"), str(seed), str(steps)]
    return subprocess.run(words, capture_output=True, check=True, env={"OMP_NUM_THREADS": "1"}).stdout


@pytest.mark.slow
def test_two_runs_take_turns_and_compute_what_they_compute_alone(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    options = ("--device", "cpu", "--no-profiles", "--lanes", "1", "--json")
    first = Started("run", job_file(one, "a", (1, 2), 100, lasts=2), *options, cwd=one)
    wait_for(lambda: (one / "times1").exists() and (one / "times1").read_text(), otherwise=lambda: first.stderr)
    second = Started("run", job_file(two, "b", (3, 4), 100, lasts=4), *options, cwd=two)
    words = rf"takes turns with {two.resolve()}\S* \(.+'s process {second.pid}\): .+, has had"
    wait_for(lambda: re.search(words, first.stderr), otherwise=lambda: first.stderr)
    (two / "over").touch()
    assert second.wait() == 0, (first.stderr, second.stderr)
    (one / "over").touch()
    assert first.wait() == 0, first.stderr
    assert f"takes turns on cpu with the run {one.resolve()}" in second.stderr
    times = sorted(
        (float(at_s), folder.name)
        for folder in (one, two)
        for path in folder.glob("times*")
        for at_s in path.read_text().split()
    )
    switches = sum(1 for before, after in pairwise(times) if before[1] != after[1])
    folders = [RunFolder(folder / "ecoshare-runs/latest") for folder in (one, two)]
    logs = [list(event_log.read(each.events)) for each in folders]
    begun = sum(1 for log in logs for each in log if isinstance(each, SliceChanged))
    assert any(isinstance(each, SliceChanged) and each.others == 1 for each in logs[0])
    assert 2 <= switches <= begun + 2, "no iteration of the one is amid a slice of the other"
    for seed, folder in ((1, one), (3, two)):
        printed = next((folder / "ecoshare-runs/latest/jobs").glob(f"?{seed}")) / "stdout.log"
        assert printed.read_bytes() == alone(folder, seed, 100)
    summary = json.loads(first.stdout)
    assert summary["away_s"] > 0.5, "the time that the other run had the devices"
    for each in folders:
        assert all(now[: len(logged)] == logged for _, logged, now in event_log.replay(event_log.read(each.events)))
    told = ecoshare("explain", one / "ecoshare-runs/latest", cwd=tmp_path)
    assert "other runs of this machine had the devices for" in told.stdout


@pytest.mark.nightly
def test_an_exclusive_run_is_waited_for(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    options = ("--device", "cpu", "--no-profiles", "--json")
    first = Started("run", job_file(one, "a", (1,), 150), *options, "--exclusive", cwd=one)
    wait_for(lambda: (one / "times1").exists() and (one / "times1").read_text(), otherwise=lambda: first.stderr)
    second = Started("run", job_file(two, "b", (2,), 10), *options, cwd=two)
    wait_for(lambda: "note: waits for the run" in second.stderr, otherwise=lambda: second.stderr)
    assert first.wait() == 0 and second.wait() == 0
    assert json.loads(first.stdout)["away_s"] is None and json.loads(second.stdout)["away_s"] is None


@pytest.mark.nightly
def test_the_other_run_goes_on_after_a_kill(tmp_path: Path) -> None:
    """The first run, which keeps the table, is killed amid its slice."""
    one, two = tmp_path / "one", tmp_path / "two"
    options = ("--device", "cpu", "--no-profiles", "--json")
    first = Started("run", job_file(one, "a", (1,), 100_000), *options, cwd=one)
    wait_for(lambda: (one / "times1").exists() and (one / "times1").read_text(), otherwise=lambda: first.stderr)
    second = Started("run", job_file(two, "b", (2,), 250), *options, cwd=two)
    wait_for(lambda: (two / "times2").exists() and (two / "times2").read_text(), otherwise=lambda: second.stderr)
    first.kill()
    assert second.wait() == 0, second.stderr
    assert json.loads(second.stdout)["state"] == "completed"
