"""Services as threads of one process: they answer as in processes of their own, and never wake up while idle."""

from __future__ import annotations

import os
import signal
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.service import RequestSource, ServiceSpec, service_as_dict
from ecoshare.lane.messages import LaunchAttempt
from ecoshare.lane.serving.request_intervals import RequestTotals, read, total
from ecoshare.lane.tables.table_layout import SlotState
from tests.lane.served_lane import ServedLane
from tests.warm import wait_for

PROGRAM = """
import sys
import ecoshare
import torch

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[2]))
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))

def train(steps):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        loss = model(torch.randn(128, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item().hex())

def serve():
    def handler(requests):
        if len(requests) == 1 and requests[0][0] == 3:
            raise ValueError("number 3")
        with torch.inference_mode():
            answers = model(torch.stack([each for _, each in requests])).double().sum(dim=1).tolist()
        print(*(f"{number} {answer.hex()}" for (number, _), answer in zip(requests, answers)), sep="\\n")
        return answers

    with ecoshare.serve(handler, batch=1, sample=lambda number: (number, torch.randn(64))) as server:
        server.run()
    print("after", torch.rand(1).item())

train(int(sys.argv[3])) if sys.argv[1] == "train" else serve()
"""

SIZES = """
import ecoshare

def handler(numbers):
    print(len(numbers), flush=True)
    return numbers

ecoshare.serve(handler).run()
print("after", flush=True)
"""


@pytest.fixture(scope="module")
def lane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLane]:
    served = ServedLane(tmp_path_factory.mktemp("lane"))
    served.hand_over_always()
    yield served
    served.close()


def started(
    lane: ServedLane, job: str, script: Path, source: RequestSource | None, *args: str, **fields: Any
) -> LaunchAttempt:
    """Start a service that a program is."""
    service = service_as_dict(ServiceSpec(0.05, requests=source))
    return lane.start(job, script, *args, service=service, requests_path=str(lane.folder / f"{job}.jsonl"), **fields)


def written(folder: Path, source: str) -> Path:
    script = folder / "program.py"
    script.write_text(textwrap.dedent(source))
    return script


def requests(lane: ServedLane, job: str) -> RequestTotals:
    return total(read(lane.folder / f"{job}.jsonl"))


@pytest.mark.slow
def test_they_answer_as_alone_beside_training_in_their_process(lane: ServedLane, tmp_path: Path) -> None:
    """If it failed, a service would answer otherwise for the jobs in its process, or change the losses of training."""
    script, source = written(tmp_path, PROGRAM), RequestSource(rate_per_s=200.0, count=30, seed=1)
    started(lane, "alone", script, source, "serve", "0", fused=False)
    lane.start("trains-alone", script, "train", "7", "50", fused=False)
    alone = [lane.ended(job) for job in ("alone", "trains-alone")]
    with lane.together():
        launches = [started(lane, f"serves{number}", script, source, "serve", "0") for number in range(2)]
        launches.append(lane.start("trains", script, "train", "7", "50"))
    ends = [lane.ended(each.job) for each in launches]
    assert [each.outcome for each in (*alone, *ends)] == ["completed"] * 5
    assert len({lane.pid(each) for each in launches}) == 1
    for number in range(2):
        assert lane.printed(f"serves{number}") == lane.printed("alone")
        found = requests(lane, f"serves{number}")
        assert (found.arrived, found.answered, found.failed) == (30, 29, 1), "one request is at fault"
        assert ends[number].usage["eval_iterations"] == 30 and ends[number].usage["handovers"] > 5
    assert lane.printed("trains") == lane.printed("trains-alone")
    assert ends[2].usage["handovers"] > 1, "it never gave way to the services"
    assert ends[2].usage["iterations"] == 50, "calls of the services counted for it"


@pytest.mark.nightly
def test_idle_ones_never_wake_up_and_end_as_they_are_asked_to(lane: ServedLane, tmp_path: Path) -> None:
    script = written(tmp_path, PROGRAM)
    (tmp_path / "arrivals").write_text("0.0\n3600.0\n")
    source = RequestSource(arrivals=str(tmp_path / "arrivals"))
    launches = [started(lane, f"idle{number}", script, source, "serve", "0") for number in range(3)]
    for number in range(3):
        wait_for((lane.folder / f"idle{number}.jsonl").exists)
    assert all(lane.table.slots[slot].seat == SlotState.AWAY for each in launches for _, slot in each.tables)
    pid = lane.pid(launches[0])

    def sleeps() -> bool:
        before = wake_ups(pid)
        time.sleep(1.5)
        return wake_ups(pid) == before

    wait_for(sleeps)  # the last steps of its start may still wake it once
    lane.stop("idle0")
    ended = lane.ended("idle0")
    assert (ended.outcome, ended.exit_code) == ("stopped", 0)
    assert b"after" in lane.printed("idle0"), "its program did not go on after `run`"
    os.kill(pid, signal.SIGKILL)
    ends = [lane.ended(f"idle{number}") for number in (1, 2)]
    assert {(each.outcome, "SIGKILL" in each.reason) for each in ends} == {("lost", True)}


def wake_ups(pid: int) -> int:
    """Context switches so far of all threads of a process."""
    lines = "".join((task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()).splitlines()
    return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)


def test_the_largest_batch_is_set_while_it_serves(lane: ServedLane, tmp_path: Path) -> None:
    launch = started(lane, "busy", written(tmp_path, SIZES), RequestSource(clients=8))
    sizes = lane.folder / "busy" / "stdout.log"
    wait_for(lambda: sizes.exists() and b"8" in lane.printed("busy").split()[1:])
    ((_, slot),) = launch.tables
    lane.table.slots[slot].most_batch = 2
    known = len(lane.printed("busy").split()) + 1
    wait_for(lambda: len(lane.printed("busy").split()) > known + 20)
    lane.stop("busy")
    assert (lane.ended("busy").outcome, lane.ended("busy").exit_code) == ("stopped", 0)
    *later, last = lane.printed("busy").split()[known:]
    assert set(later) == {b"2"} and last == b"after"
    found = requests(lane, "busy")
    assert found.answered == found.arrived - found.failed and found.failed <= 8, "those that waited at the end"


OWN = "server = ecoshare.serve(lambda numbers: numbers)\n"
UNFIT = {
    "it answers over HTTP": f"{OWN}server.app()",
    "it submits requests itself": f"{OWN}server.submit(0)",
    "it waits for requests from outside": f"{OWN}server.run()",
    "it starts a thread": """
        import threading
        ecoshare.serve(lambda numbers: threading.Thread(target=print).start() or numbers).run()""",
}


@pytest.mark.slow
def test_those_that_need_threads_are_moved_out(lane: ServedLane, tmp_path: Path) -> None:
    for number, (why, source) in enumerate(UNFIT.items()):
        (folder := tmp_path / str(number)).mkdir()
        script = written(folder, f"import ecoshare\n{textwrap.dedent(source)}\n")
        driven = None if "outside" in why else RequestSource(clients=2, count=10)
        started(lane, f"unfit{number}", script, driven)
        ended = lane.ended(f"unfit{number}")
        assert (ended.outcome, ended.reason) == ("moved out", f"needs a process of its own: {why}")
    started(lane, "again", script, driven, attempt=2, fused=False)
    assert lane.ended("again", attempt=2).outcome == "completed"
