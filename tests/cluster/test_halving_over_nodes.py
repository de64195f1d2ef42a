"""Synchronous halving over two agents: trials pause at each rung, and the best go on from their saved state."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ecoshare.base.attempt import Outcome
from ecoshare.core.commands import DropJob, KillJob, OpenLane, StartJob
from ecoshare.core.events import JobExited, Reported
from ecoshare.record import event_log
from ecoshare.record.log_fold import LogEntry
from tests.cluster.agents import members, run_on, states
from tests.runtime.running import alone
from tests.warm import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TRIAL = """
import os, sys, time
import torch

lr, state = float(sys.argv[1]), f"state-{sys.argv[1]}.pt"
torch.manual_seed(0)
model = torch.nn.Linear(16, 1)
features = torch.randn(64, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
first = 0
if "--resume" in sys.argv and os.path.exists(state):
    saved = torch.load(state)
    first = saved["epochs"]
    model.load_state_dict(saved["model"])
print(f"goes on after {first}", flush=True)
for epoch in range(first + 1, 10):
    for _ in range(20):
        loss = (model(features) - features.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    torch.save({"epochs": epoch, "model": model.state_dict()}, f"{state}.new")
    os.replace(f"{state}.new", state)
    print(f"epoch {epoch} loss={loss.item():.9g}", flush=True)
"""
"""Script of a trial, which saves its state before it tells a value."""

RATES = [0.001, 0.1, 0.003, 0.0003, 0.03, 0.01]
"""The second one is the best, and the fifth one comes next."""

RUNGS, REDUCTION, EPOCHS = (1, 3), 3, 9


def sweep(folder: Path) -> dict[str, object]:
    (folder / "trial.py").write_text(TRIAL)
    stop = {"rule": "halving", "grace": RUNGS[0], "reduction": REDUCTION, "steps": EPOCHS}
    return {
        "name": "s",
        "script": "trial.py",
        "args": ["{lr}"],
        "preemptible": True,
        "resume_args": ["--resume"],
        "sweep": {"grid": {"lr": RATES}, "metric": "loss={:f}", "stop": stop},
    }


def check_waits(entries: Sequence[LogEntry]) -> None:
    """Check that no trial goes on from a rung before all trials that are left have reached it."""
    reached, pruned = dict[str, int](), set[str]()
    for each in entries:
        if isinstance(each, Reported):
            reached[each.job] = each.step
        elif isinstance(each, DropJob | KillJob) and each.pruned:
            pruned.add(each.job)
        elif isinstance(each, StartJob) and each.attempt > 1:
            rung = max(rung for rung in RUNGS if rung <= reached[each.job])
            left = {name: step for name, step in reached.items() if name not in pruned}
            assert len(left) + len(pruned) == len(RATES), f"{each.job} goes on, and another one has told nothing yet"
            assert min(left.values()) >= rung, f"{each.job} goes on from step {rung}: {left}"


def worst(entries: Sequence[LogEntry], rung: int, trials: set[str]) -> set[str]:
    """Trials that must end at a rung, by the values that all trials have told there."""
    values = dict[str, float]()
    for each in entries:
        if isinstance(each, Reported) and each.step >= rung and each.job in trials:
            values.setdefault(each.job, each.value)
    assert values.keys() == trials
    return set(sorted(trials, key=values.__getitem__)[max(1, len(trials) // REDUCTION) :])


def lines_of_epochs(*texts: str) -> list[str]:
    return [line for text in texts for line in text.splitlines() if line.startswith("epoch")]


@pytest.mark.nightly
def test_trials_of_two_nodes_wait_for_each_other_and_the_best_go_on(tmp_path: Path) -> None:
    done = run_on(tmp_path, [sweep(tmp_path)], lanes=1, jobs_per_lane=1)
    names, best = {f"s.{number:04d}" for number in range(len(RATES))}, "s.0001"
    ends = {name: state for name, (state, _) in states(done).items()}
    assert ends == {name: "completed" if name == best else "pruned" for name in names}
    (found,) = done.data.summary.sweeps
    assert (found.states, found.best[0].name) == ({"completed": 1, "pruned": len(RATES) - 1}, best)

    entries = list(event_log.read(done.folder.events))
    devices = {each.lane: each.device for each in entries if isinstance(each, OpenLane)}
    starts = [each for each in entries if isinstance(each, StartJob)]
    first = {each.job: devices[each.lanes[0]] for each in starts if each.attempt == 1}
    assert first.keys() == names and set(first.values()) == {"n0/cpu", "n1/cpu"}, "trials run on both nodes"
    check_waits(entries)
    pruned = [each.job for each in entries if isinstance(each, DropJob | KillJob) and each.pruned]
    at_first = worst(entries, RUNGS[0], names)
    assert len(at_first) == 4 and set(pruned[:4]) == at_first
    assert set(pruned[4:]) == worst(entries, RUNGS[1], names - at_first)
    last = list(dict.fromkeys(each.job for each in entries if isinstance(each, Reported)))[-1]
    paused = {each.job for each in entries if isinstance(each, JobExited) and each.outcome is Outcome.STOPPED}
    assert paused >= names - {last}, "all trials but the last one to come leave their places at the first rung"

    folder = done.folder.job(best)
    attempts = [path.read_text() for path in [*sorted(folder.glob("stdout.attempt-*.log")), folder / "stdout.log"]]
    first_epochs = len(lines_of_epochs(attempts[0]))  # one, and more if it was stopped late
    assert attempts[1].startswith(f"goes on after {first_epochs}\n"), "it goes on from its saved state"
    code, stdout = alone(tmp_path / "trial.py", (str(RATES[1]),), tmp_path)
    assert code == 0
    assert lines_of_epochs(*attempts) == lines_of_epochs(stdout.decode()), "each epoch once, as in an unbroken run"
    for _, logged, now in event_log.replay(iter(entries)):
        assert logged == now
    wait_for(lambda: not members(done.folder.path))
