"""Random signals to processes of a run, a gang, a service or a queue at any moment: no job is lost, no process stays.

A run of the kind `parked` puts a job aside for an urgent one that comes later. Two runs of the kind `beside` take turns
on a fake GPU, of which the first limits the power; the limit is as it was found after them.

Signals that end a command (SIGINT, SIGTERM, SIGHUP) let it exit with 130. Others have the kernel's default effect.
Either way all processes and the folder in memory are removed, and the resumed run gives the jobs' output alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.fuzz.commands import Called, ended, environment, judge, nothing_left, queue_up, started, token_of
from scripts.fuzz.processes import processes
from scripts.fuzz.rounds import Lost, Play, Round, main
from tests.devices.claims import FOUND_W, limited
from tests.driver import COMPILER, FakeDriver, presets
from tests.driver.training import COMPUTES, SCRIPT
from tests.runtime.machine import may_set
from tests.runtime.running import SCRIPTS, alone, job_file, slow_steps, words
from tests.warm import Started

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNALS = (
    *(*ENDING, signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP, signal.SIGTSTP, signal.SIGCONT, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE, signal.SIGALRM, signal.SIGCHLD, signal.SIGWINCH, signal.SIGURG),
    *(signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGTTIN, signal.SIGTTOU, signal.SIGIO, signal.SIGXCPU),
)
STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
ROLES = ("controller", "guard", "server", "job", "group")
MOST_SIGNALS = 3
_LASTS_S, _LONGER_S = 1.6, {"parked": 4.0, "beside": 8.0}
"""Time after the start of a run within which signals are sent, also by kind; most runs take about so long."""

_BUDGET_W = 400

_ENDS_WITHIN_S = 60.0

_GANG = """
import os, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(dist.get_rank())
for _ in range(40):
    loss = model(torch.randn(64, 16, generator=data)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
total = loss.detach().clone()
dist.all_reduce(total)
os.write(1, f"{total.item():.9g}\\n".encode())
dist.destroy_process_group()
"""

_SERVES = """
import torch
import ecoshare

model = torch.nn.Linear(8, 8)
serving = ecoshare.serve(lambda batch: [float(model(torch.ones(8)).sum()) for _ in batch])
serving.run()
"""

_MORE: dict[str, dict[str, Any]] = {
    "gang": {"script": "gang.py", "gpus": 2, "launch": "ranks"},
    "service": {"script": "serves.py", "service": {"p99": "1 s", "requests": {"rate": 60, "count": 60}}},
}
_PARKS = ("--policy", "priority", "--jobs-per-lane", "1", "--host-memory", "1 GiB")
_OPTIONS = {"gang": ("--device", "cpu/2"), "parked": _PARKS}


@dataclass(frozen=True)
class Sent:
    """Signal that was sent.

    Attributes:
        role: Role of the process, or the group of the controller's session.
        pid: Number of the process, or of the first process of the group.
    """

    role: str
    number: signal.Signals
    pid: int


def prepare(folder: Path) -> Play:
    """Output of the jobs alone; for a gang and its neighbours that of a run without signals."""
    (folder / "gang.py").write_text(_GANG)
    (folder / "serves.py").write_text(_SERVES)
    scripts = {
        "validation": (SCRIPTS / "validation.py", ()),
        "steps": (SCRIPTS / "slow_steps.py", ("--steps", "60")),
        "parked": (SCRIPTS / "slow_steps.py", ("--steps", "300")),
    }
    expected = {name: alone(script, (*args, *_fast(name)), SCRIPTS)[1] for name, (script, args) in scripts.items()}
    expected["steps-b"] = expected["urgent"] = expected["steps"]
    whole = job_file(folder, *_jobs(), _more("gang", folder))
    judge(started(*words(whole, *_OPTIONS["gang"])))
    parted = {
        name: _output(folder / "ecoshare-runs" / "latest", name) for name in ("steps", "steps-b", "validation", "gang")
    }
    assert all(parted.values()), "each job has run"

    kinds = ["run", "gang", "service", "queue", "parked", *(["beside"] if COMPILER and may_set() else [])]

    def play(one: Round) -> None:
        (one.folder / "work").mkdir()
        what = one.dice.choice(kinds)
        if what == "beside":
            _play_beside(one, one.folder / "work")
            return
        jobs = _parked() if what == "parked" else [*_jobs(), *([_more(what, folder)] if what in _MORE else [])]
        path = job_file(one.folder / "work", *jobs)
        wanted = parted if what == "gang" else expected  # a partition has fewer threads
        names = [job["name"] for job in jobs if job["name"] in wanted]
        run: Path | None = _queue_run(one.folder)
        if what == "queue":
            with contextlib.ExitStack() as ends:  # also if this driver fails
                _play_queue(one, path, names, ends)
        else:
            run = _play_run(one, what, path, {name: wanted[name] for name in names})
        if run is not None and (wrong := [name for name in names if _output(run, name) != wanted[name]]):
            raise Lost("a job's output is not that of the job alone", f"{wrong}")

    return play


def _play_run(one: Round, what: str, path: Path, expected: dict[str, bytes]) -> Path | None:
    """Send signals to a run, and resume it until all of its jobs have ended; None if it had not begun."""
    run = path.parent / "ecoshare-runs" / "latest"
    policy = one.dice.choice(["fair", "fifo", "pack"])
    process = Started(*words(path, "--policy", policy, *_OPTIONS.get(what, ())), new_session=True)
    sent = _send(one, process, run, what)
    done = _end(process, sent)
    if (run / "environment.json").is_file():
        nothing_left(token_of(run))
    _judge(done, sent)
    if not (run / "plan.json").is_file():
        return None  # the plan is written last
    kept = run.resolve()
    for _ in range(2):  # a run that lost its job to a signal fails; what is left of it is nothing
        if all(_output(kept, name) == wanted for name, wanted in expected.items()):
            break
        done = started("run", "--resume", kept, "--json", "--no-report", limit_s=_ENDS_WITHIN_S)
        nothing_left(token_of(kept))
        judge(done)
    return kept


def _play_beside(one: Round, work: Path) -> None:
    """Send signals to one of two runs on a fake GPU, of which the first has a budget; both complete."""
    driver = FakeDriver(work, [presets.H200])
    with driver:
        limited(driver, FOUND_W)
    ours = environment(**driver.environment, ECOSHARE_STATE=str(work / "state"), ECOSHARE_SYSFS=str(work / "sys"))
    began = [_begin_on_gpu(work / "first", ours, "--power-budget", f"{_BUDGET_W} W")]
    time.sleep(one.dice.uniform(0.0, 2.0))
    began.append(_begin_on_gpu(work / "second", ours))
    process, run = began[place := one.dice.randrange(2)]
    sent = _send(one, process, run, "beside")
    one.story.append(f"the {('first', 'second')[place]} of two runs")
    _judge(_end(process, sent), sent)
    other, other_run = began[1 - place]
    judge(ended(other, _ENDS_WITHIN_S), codes=[0])
    if {"controller", "guard"} <= {each.role for each in sent if each.number == signal.SIGKILL}:
        judge(started("restore", environment=ours), codes=[0])
    for each in (run, other_run):
        if (each / "plan.json").is_file():
            nothing_left(token_of(each))
    if (run / "plan.json").is_file():
        for _ in range(2):
            if _has_completed(run):
                break
            judge(started("run", "--resume", run.resolve(), "--json", "--no-report", environment=ours))
        if not _has_completed(run):
            raise Lost("the jobs of a run beside another are not over after three sessions", str(run))
    if place == 1 and all(each.values[0] > _BUDGET_W * 1000 for each in driver.setter_calls()):
        raise Lost("the first of two runs has not limited the power")
    found_w = driver.gpu(0).settings().power_limit_w
    if found_w != FOUND_W:
        raise Lost("the power limit is not as it was found", f"{found_w} W")


def _begin_on_gpu(folder: Path, ours: Mapping[str, str], *options: str) -> tuple[Started, Path]:
    """Begin a run of two jobs on the fake GPU; return it with its folder."""
    folder.mkdir()
    (folder / "trains.py").write_text(SCRIPT)
    jobs = ({**COMPUTES.job(40), "name": name, "retries": MOST_SIGNALS} for name in "ab")
    line = words(job_file(folder, *jobs), *options)
    line[line.index("cpu")] = "cuda:0"
    return Started(*line, cwd=folder, environment=ours, new_session=True), folder / "ecoshare-runs" / "latest"


def _has_completed(run: Path) -> bool:
    """Whether both jobs of a run on the fake GPU have completed."""
    exits = (path.read_text() for name in "ab" for path in (run / "jobs" / name).glob("exit-*.json"))
    return [json.loads(each)["outcome"] for each in exits].count("completed") == 2


def _play_queue(one: Round, path: Path, names: Sequence[str], ends: contextlib.ExitStack) -> None:
    """Send signals to a queue that has acknowledged jobs, and open it again until all of them have completed."""
    state = environment(ECOSHARE_STATE=str(one.folder / "state"))

    process = ends.enter_context(queue_up(state, "--policy", one.dice.choice(["fair", "fifo", "pack"])))
    acknowledged = _asked("submit", state, str(path))
    judge(acknowledged)
    sent = _send(one, process, _queue_run(one.folder), "queue")
    _continue(sent)
    for _ in range(3):
        waited = _asked("wait", state, *names)
        if waited.code == 0:
            break
        if process.poll() is None:
            raise Lost("a queue that is up does not end its jobs", f"{waited.stderr}\n{process.stderr[-800:]}")
        _judge(ended(process, _ENDS_WITHIN_S), sent)
        nothing_left(token_of(_queue_run(one.folder)))
        process = ends.enter_context(queue_up(state, "--resume"))
    else:
        raise Lost("jobs of a queue are not over after three sessions", waited.stderr)
    if process.poll() is None:
        judge(_asked("down", state, "--yes"))
    _judge(ended(process, _ENDS_WITHIN_S), sent)
    nothing_left(token_of(_queue_run(one.folder)))


def _queue_run(folder: Path) -> Path:
    return folder / "state" / "queues" / "default" / "runs" / "latest"


def _asked(command: str, state: Mapping[str, str], *more: str) -> Called:
    return started(command, *more, environment=state, limit_s=_ENDS_WITHIN_S)


def _fast(name: str) -> tuple[str, ...]:
    return ("--ms", "5") if name in ("steps", "parked") else ()


def _jobs() -> list[dict[str, Any]]:
    """Jobs with as many retries as signals are sent."""
    steps = [slow_steps(name, 60, 5, retries=MOST_SIGNALS) for name in ("steps", "steps-b")]
    return [*steps, {"name": "validation", "script": str(SCRIPTS / "validation.py"), "retries": MOST_SIGNALS}]


def _parked() -> list[dict[str, Any]]:
    """A job that is parked, one that waits, and an urgent one that comes in the midst of the first."""
    urgent = slow_steps("urgent", 60, 5, retries=MOST_SIGNALS, priority=9, arrival="2 s")
    return [
        *(slow_steps(name, steps, 5, retries=MOST_SIGNALS) for name, steps in (("parked", 300), ("steps", 60))),
        urgent,
    ]


def _more(what: str, folder: Path) -> dict[str, Any]:
    """Job of two ranks, or a service that ends with its last request."""
    return {"name": what, "retries": MOST_SIGNALS, **_MORE[what], "script": str(folder / _MORE[what]["script"])}


def _send(one: Round, process: Started, run: Path, what: str) -> list[Sent]:
    """Send signals at random moments; returns those that found a process."""
    count = one.dice.choice([1, 1, 1, 2, MOST_SIGNALS])
    lasts_s = _LONGER_S.get(what, _LASTS_S)
    plan = [(one.dice.uniform(0.0, lasts_s), one.dice.choice(ROLES), one.dice.choice(SIGNALS)) for _ in range(count)]
    which = one.dice.random()
    began_s = time.monotonic()
    sent = []
    for at_s, role, number in sorted(plan, key=lambda each: each[0]):
        while (left_s := began_s + at_s - time.monotonic()) > 0 and process.poll() is None:
            time.sleep(min(left_s, 0.02))
        if pid := _signal(process, run, role, number, which):
            sent.append(Sent(role, number, pid))
            one.story.append(f"{number.name} to the {role} after {at_s:.2f} s")
    found = "over" if not sent else sent[0].role if len(sent) == 1 else f"{len(sent)} signals"
    one.kind = f"{what}: {found}"
    return sent


def _signal(process: Started, run: Path, role: str, what: signal.Signals, which: float) -> int:
    """Send a signal to a process of a run; returns its number, or 0 if it was not there."""
    if process.poll() is not None:
        return 0
    with contextlib.suppress(ProcessLookupError):
        if role == "group":
            os.killpg(process.pid, what)
            return process.pid
        found = [process.pid] if role == "controller" else processes(process.pid, run).get(role)
        if found:
            pid = found[int(which * len(found))]
            os.kill(pid, what)
            return pid
    return 0


def _end(process: Started, sent: Sequence[Sent]) -> Called:
    """Wait for the end; stopped processes are continued, as a user would."""
    _continue(sent)
    return ended(process, _ENDS_WITHIN_S)


def _continue(sent: Sequence[Sent]) -> None:
    if stopped := [each for each in sent if each.number in STOPS]:
        time.sleep(0.3)
        for each in stopped:
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if each.role == "group" else os.kill)(each.pid, signal.SIGCONT)


def _judge(done: Called, sent: Sequence[Sent]) -> None:
    """Check the end of a command: 130 if it was asked to end, or dead of a signal that ends any process."""
    kills = Counter(-each.number for each in sent if each.role in ("controller", "group"))
    if done.code < 0 and done.code in kills and -done.code not in ENDING:
        judge(done, codes=[done.code])
        return
    judge(done)


def _output(run: Path, name: str) -> bytes:
    """Output of the last attempt of a job."""
    log = run / "jobs" / name / "stdout.log"
    return log.read_bytes() if log.exists() else b""


if __name__ == "__main__":
    main("signals", __doc__, prepare)
