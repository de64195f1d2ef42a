"""A policy over two agents: a job that has to give its machine up saves its state, and goes on on the other one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.attempt import Outcome
from ecoshare.core.commands import KillJob, OpenLane, StartJob
from ecoshare.core.events import JobExited
from ecoshare.record import event_log
from tests.cluster.agents import members, run_on, states
from tests.runtime.running import SCRIPTS, alone
from tests.runtime.test_device_moves import losses
from tests.warm import wait_for

pytestmark = pytest.mark.timeout(300)

STEPS = 300
TRAINS_UNTIL = """
import sys, time
from pathlib import Path
import torch

path, words = Path(sys.argv[1]), sys.argv[2]
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
until_s = time.monotonic() + 60.0
print("has begun", flush=True)
while not path.exists() or words not in path.read_text():
    loss = model(torch.ones(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.02)
    assert time.monotonic() < until_s, f"no job has printed {words!r}"
"""
"""Script that trains until the output of another job has these words. Arguments: path of the output, and the words."""


def trains_until(folder: Path, name: str, other: str, words: str, **keys: Any) -> dict[str, Any]:
    """Job that keeps its place until another one has printed these words."""
    (folder / "trains_until.py").write_text(TRAINS_UNTIL)
    output = folder / "runs" / "latest" / "jobs" / other / "stdout.log"
    return {"name": name, "script": "trains_until.py", "args": [str(output), words], **keys}


def jobs(folder: Path, **keys: Any) -> list[dict[str, Any]]:
    """Three jobs for two machines.

    The first one saves its state when it is stopped. The second one has the other machine until the third one has the
    place of the first one. The third one ends when the first one has gone on, so that its machine is not free before.
    """
    moves = {
        "name": "moves",
        "script": str(SCRIPTS / "checkpoint_resume.py"),
        "args": ["--steps", STEPS, "--step-ms", 20],
        "preemptible": True,
        "resume_args": ["--resume"],
    }
    return [
        {**moves, **keys},
        trains_until(folder, "stays", "comes", "has begun", **keys),
        trains_until(folder, "comes", "moves", "resumed at", **keys),
    ]


@pytest.mark.nightly
def test_a_job_that_is_preempted_goes_on_from_its_checkpoint_on_the_other_machine(tmp_path: Path) -> None:
    given = jobs(tmp_path)
    done = run_on(tmp_path, given, policy="tiresias", jobs_per_lane=1, lanes=1, options={"limit_1": 1.0})
    assert {name: state for name, (state, _) in states(done).items()} == {job["name"]: "completed" for job in given}
    entries = list(event_log.read(done.folder.events))
    assert [(each.job, each.reason) for each in entries if isinstance(each, KillJob)] == [
        ("moves", "gives way to comes")
    ]

    devices = {each.lane: each.device for each in entries if isinstance(each, OpenLane)}
    starts = [(each.job, devices[each.lanes[0]]) for each in entries if isinstance(each, StartJob)]
    where = dict(starts)
    assert [device for job, device in starts if job == "moves"] == [where["comes"], where["stays"]]
    assert where["comes"] != where["stays"]
    ends = [each for each in entries if isinstance(each, JobExited) and each.job == "moves"]
    assert [each.outcome for each in ends] == [Outcome.STOPPED, Outcome.COMPLETED]
    assert sum(each.usage.iterations for each in ends) == STEPS

    folder = done.folder.job("moves")
    first, second = (folder / name for name in ("stdout.attempt-1.log", "stdout.log"))
    steps = [int(line.split()[0]) for path in (first, second) for line in lines_of_steps(path)]
    assert steps == list(range(STEPS)), "each step once: the second attempt begins at the checkpoint of the first one"
    code, stdout = alone(SCRIPTS / "checkpoint_resume.py", ("--steps", str(STEPS), "--step-ms", "0"), tmp_path)
    assert code == 0 and losses(first.read_bytes(), second.read_bytes()) == losses(stdout)
    for _, logged, now in event_log.replay(iter(entries)):
        assert logged == now
    wait_for(lambda: not members(done.folder.path))


def lines_of_steps(output: Path) -> list[str]:
    """Lines of steps in the output of an attempt."""
    return [line for line in output.read_text().splitlines() if line[:1].isdecimal()]
