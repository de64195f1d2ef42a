"""Random signals to any process of a run at random moments: no job is lost, and no process stays.

Signals that end a command (SIGINT, SIGTERM, SIGHUP) let it exit with 130. Others have the kernel's default effect.
Either way all processes and the folder in memory are removed, and the resumed run gives the jobs' output alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.fuzz.commands import Called, ended, judge, nothing_left, started, token_of
from scripts.fuzz.processes import processes
from scripts.fuzz.rounds import Lost, Play, Round, main
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
LASTS_S = 1.6
"""Time after the start of a run within which signals are sent; most runs take about so long."""

_ENDS_WITHIN_S = 60.0


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


def prepare(_folder: Path) -> Play:
    """Output of the jobs alone."""
    scripts = {"validation": (SCRIPTS / "validation.py", ()), "steps": (SCRIPTS / "slow_steps.py", ("--steps", "60"))}
    expected = {name: alone(script, (*args, *_fast(name)), SCRIPTS)[1] for name, (script, args) in scripts.items()}
    expected["steps-b"] = expected["steps"]

    def play(one: Round) -> None:
        (one.folder / "work").mkdir()
        path = job_file(one.folder / "work", *_jobs())
        run = one.folder / "work" / "ecoshare-runs" / "latest"
        policy = one.dice.choice(["fair", "fifo", "pack"])
        process = Started(*words(path, "--policy", policy), new_session=True)
        sent = _send(one, process, run)
        one.kind = "none: the run was over" if not sent else sent[0].role if len(sent) == 1 else f"{len(sent)} signals"
        done = _end(process, sent)
        if (run / "environment.json").is_file():
            nothing_left(token_of(run))
        _judge(done, sent)
        if not (run / "plan.json").is_file():
            return  # it had not begun: the plan is written last
        kept = run.resolve()
        for _ in range(2):  # a run that lost its job to a signal fails; what is left of it is nothing
            if _outputs(kept) == expected:
                break
            done = started("run", "--resume", kept, "--json", "--no-report", limit_s=_ENDS_WITHIN_S)
            nothing_left(token_of(kept))
            judge(done)
        if (outputs := _outputs(kept)) != expected:
            wrong = sorted(name for name in expected if outputs[name] != expected[name])
            raise Lost("a job's output is not that of the job alone", f"{wrong}\n{done.stderr[-800:]}")

    return play


def _fast(name: str) -> tuple[str, ...]:
    return ("--ms", "5") if name == "steps" else ()


def _jobs() -> list[dict[str, Any]]:
    """Jobs with as many retries as signals are sent."""
    steps = [slow_steps(name, 60, 5, retries=MOST_SIGNALS) for name in ("steps", "steps-b")]
    return [*steps, {"name": "validation", "script": str(SCRIPTS / "validation.py"), "retries": MOST_SIGNALS}]


def _send(one: Round, process: Started, run: Path) -> list[Sent]:
    """Send signals at random moments; returns those that found a process."""
    number = one.dice.choice([1, 1, 1, 2, MOST_SIGNALS])
    plan = [(one.dice.uniform(0.0, LASTS_S), one.dice.choice(ROLES), one.dice.choice(SIGNALS)) for _ in range(number)]
    which = one.dice.random()
    began_s = time.monotonic()
    sent = []
    for at_s, role, what in sorted(plan, key=lambda each: each[0]):
        while (left_s := began_s + at_s - time.monotonic()) > 0 and process.poll() is None:
            time.sleep(min(left_s, 0.02))
        if pid := _signal(process, run, role, what, which):
            sent.append(Sent(role, what, pid))
            one.story.append(f"{what.name} to the {role} after {at_s:.2f} s")
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
    if stopped := [each for each in sent if each.number in STOPS]:
        time.sleep(0.3)
        for each in stopped:
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if each.role == "group" else os.kill)(each.pid, signal.SIGCONT)
    return ended(process, _ENDS_WITHIN_S)


def _judge(done: Called, sent: Sequence[Sent]) -> None:
    """Check the end of a command: 130 if it was asked to end, or dead of a signal that ends any process."""
    kills = Counter(-each.number for each in sent if each.role in ("controller", "group"))
    if done.code < 0 and done.code in kills and -done.code not in ENDING:
        judge(done, codes=[done.code])
        return
    judge(done)


def _outputs(run: Path) -> dict[str, bytes]:
    """Output of the last attempt of each job."""
    logs = {name: run / "jobs" / name / "stdout.log" for name in ("steps", "steps-b", "validation")}
    return {name: log.read_bytes() if log.exists() else b"" for name, log in logs.items()}


if __name__ == "__main__":
    main("signals", __doc__, prepare)
