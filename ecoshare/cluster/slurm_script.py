"""The batch script that runs a job file in an allocation of Slurm, and goes on with its run after a requeue.

::

    sbatch ──► allocation ──► ecoshare run jobs.yaml --on slurm
                  limit - grace: SIGTERM to the run alone ──► jobs stop, settings are put back
                  requeue, preemption                     ──► ecoshare run --resume RUN --on slurm

A machine that fails does not end the allocation (`--no-kill`): the run goes on with the others.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ecoshare.base.printable import last_line
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.jobs.quantities import parse_duration_s
from ecoshare.run_options import check_counts

_ANSWERS_WITHIN_S = 60.0
"""Longest time (s) of a command of Slurm: its controller may be busy."""


def asked(command: Sequence[str], text: str | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Output of a command of Slurm.

    Args:
        command: The command line.
        text: Text for its stdin; None for none.
        environment: Environment of the command; None for that of this process.

    Raises:
        UnfitEnvironment: It is not installed, does not end, or fails.
    """
    name = command[0]
    if shutil.which(name) is None:
        raise UnfitEnvironment(f"{name} is not there: Slurm is not installed, or not in PATH")
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=_ANSWERS_WITHIN_S, env=environment
        )
    except subprocess.TimeoutExpired:
        raise UnfitEnvironment(f"{name} does not answer within {_ANSWERS_WITHIN_S:g} s") from None
    if done.returncode != 0:
        said = last_line(done.stderr)
        for prefix in ("error", "fatal"):
            said = said.removeprefix(f"{name}: {prefix}: ")
        raise UnfitEnvironment(f"{name}: {said or f'exit code {done.returncode}'}")
    return done.stdout


def fields(line: str) -> dict[str, str]:
    """Fields of a line of `scontrol --oneliner show`, by name."""
    words = (word.partition("=") for word in line.split())
    return {name: value for name, equals, value in words if equals}


def submitted(words: Sequence[str] = (), text: str | None = None, environment: Mapping[str, str] | None = None) -> int:
    """ID of the job that `sbatch` makes of a batch script.

    Args:
        words: Further words of the command line, such as the path of the script.
        text: The script, if `words` name none.
        environment: Environment that the job gets; None for that of this process.

    Raises:
        UnfitEnvironment: Slurm refuses the job, or does not answer.
    """
    said = asked(["sbatch", "--parsable", *words], text, environment).strip().partition(";")[0]
    if not said.isdecimal():
        raise UnfitEnvironment(f"sbatch names no job: {said!r}")
    return int(said)


STOP_S = 120.0
"""Default time (s) before the limit at which jobs are asked to stop. Slurm's check of it is up to a minute late."""

_LEAST_STOP_S = 60.0

_PROCESSORS = ("--cpus-per-", "-c", "--exclusive", "--ntasks-per-node", "--mincpus")
"""Options of `sbatch` that say how many processors an allocation gets."""

_KEPT = {
    "--share-device": False,
    "--no-report": False,
    "--json": False,
    "--node-timeout": True,
    "--control": True,
    "--release-idle": True,
}
"""Options of `ecoshare run` that go with `--resume`, and whether each has a value."""


@dataclass(frozen=True, slots=True)
class AllocationRequest:
    """Allocation of Slurm, and what runs in it.

    Attributes:
        jobs: Job file.
        nodes: Number of nodes.
        gpus_per_node: Number of GPUs of each node; None if the jobs run on processors.
        cpus_per_node: Number of processors of each node; None for what the partition gives, which may be one.
        time_s: Time limit (s); None for that of the partition.
        partition: Partition; None for the default of the cluster.
        stop_s: Time (s) before the limit at which jobs are asked to stop.
        name: Name of the Slurm job.
        runs: Folder that gets the run folder, on a file system that all nodes share.
        folder: Working folder.
        options: Further options of `ecoshare run`.
        sbatch: Further options of `sbatch`, such as `--account=lab`.
    """

    jobs: Path
    nodes: int = 1
    gpus_per_node: int | None = None
    cpus_per_node: int | None = None
    time_s: float | None = None
    partition: str | None = None
    stop_s: float = STOP_S
    name: str = "ecoshare"
    runs: Path = Path("ecoshare-runs")
    folder: Path = Path()
    options: Sequence[str] = ()
    sbatch: Sequence[str] = ()


def check(request: AllocationRequest, least_stop_s: float = _LEAST_STOP_S) -> None:
    """Check an allocation that a user asks for.

    Args:
        request: The allocation.
        least_stop_s: Shortest time (s) before the limit at which the jobs may be asked to stop.

    Raises:
        UsageError: A number is out of its range, a text has a line break, or the limit leaves no time for the jobs.
    """
    check_counts(request.nodes, request.gpus_per_node, request.cpus_per_node)
    for text in (request.name, request.partition or "", str(request.runs), str(request.folder), *request.sbatch):
        if text and text.splitlines() != [text]:
            raise UsageError(f"{text!r} has a line break, which the heading of a batch script cannot have")
    if request.stop_s < least_stop_s:
        why = "since Slurm looks once a minute" if least_stop_s == _LEAST_STOP_S else "the time that jobs get to stop"
        raise UsageError(f"--stop-before {request.stop_s:g}s: expected {least_stop_s:g}s or more, {why}")
    if request.time_s is not None and request.time_s <= request.stop_s:
        raise UsageError(
            f"--time {request.time_s:g}s leaves no time for the jobs, which stop {request.stop_s:g} s before it",
            "give more time, or another --stop-before",
        )


def script(request: AllocationRequest) -> str:
    """Text of the batch script.

    Args:
        request: The allocation, checked.
    """
    python, jobs, runs = map(shlex.quote, (sys.executable, str(request.jobs.absolute()), str(request.runs.absolute())))
    options = shlex.join(run_options(request))
    return f"""\
{heading(request, f"--signal=B:TERM@{request.stop_s:.0f}")}\
# A requeued job goes on with its run. The signal before the limit comes to this process, which becomes ecoshare.
runs={runs}/slurm-$SLURM_JOB_ID
if [ -e "$runs/latest/plan.json" ]; then
    exec {python} -m ecoshare run --resume "$runs/latest" {shlex.join(resume_options(request))}
fi
exec {python} -m ecoshare run {jobs} --runs "$runs" {options}
"""


def notes(request: AllocationRequest) -> list[str]:
    """Notes for the user on an allocation."""
    found = []
    given = (word.partition("=")[0].split()[0] for word in request.sbatch if word.strip())
    if request.cpus_per_node is None and not any(word.startswith(_PROCESSORS) for word in given):
        found.append("without --cpus-per-node, Slurm gives as many processors as the partition says, which may be one")
    sets = not any(pair in f"{shlex.join(request.options)} " for pair in ("--control off ", "--control=off "))
    if request.gpus_per_node is not None and sets:
        found.append(f"if Slurm kills the job, this line in an epilog puts clocks and power back: {epilog()}")
    return found


def epilog() -> str:
    """Line of an epilog that puts back what a killed job has set. A failed epilog would drain the machine."""
    python = shlex.quote(sys.executable)
    return f'runuser -u "$SLURM_JOB_USER" -- {python} -m ecoshare restore || true'


def heading(request: AllocationRequest, *more: str) -> str:
    """First lines of a batch script, up to the options of `sbatch`, with `more` of them."""
    directives = [
        _quoted(f"--job-name={request.name}"),
        f"--nodes={request.nodes}",
        "--ntasks-per-node=1",
        *([f"--cpus-per-task={request.cpus_per_node}"] if request.cpus_per_node is not None else []),
        *([f"--gres=gpu:{request.gpus_per_node}"] if request.gpus_per_node is not None else []),
        *([f"--time={slurm_time(request.time_s)}"] if request.time_s is not None else []),
        *([_quoted(f"--partition={request.partition}")] if request.partition is not None else []),
        *more,
        "--requeue",
        "--no-kill",
        "--open-mode=append",
        _quoted(f"--output={str(request.runs.absolute()).replace('%', '%%')}/slurm-%j.out"),
        _quoted(f"--chdir={request.folder.absolute()}"),
        *map(_quoted, request.sbatch),
    ]
    return "#!/bin/bash\n" + "".join(f"#SBATCH {each}\n" for each in directives)


def run_options(request: AllocationRequest) -> list[str]:
    """Options of `ecoshare run` in the allocation."""
    device = ["--device", "cpu"] if request.gpus_per_node is None and "--device" not in request.options else []
    return ["--on", "slurm", *device, *request.options]


def resume_options(request: AllocationRequest) -> list[str]:
    """Options of `ecoshare run --resume` in the allocation."""
    return ["--on", "slurm", *_kept(request.options)]


def _kept(options: Sequence[str]) -> list[str]:
    """Options of a run that go with `--resume`, too; the others come from the run."""
    found, words = list[str](), iter(options)
    for word in words:
        if word.partition("=")[0] in _KEPT:
            found.append(word)
            if "=" not in word and _KEPT[word]:
                found.append(next(words, ""))
    return found


def _quoted(option: str) -> str:
    """An option as `#SBATCH` reads it. Slurm takes no variables there, but cuts at blanks, and at `#`."""
    if not any(letter in option for letter in " \t\"'\\#"):
        return option
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def slurm_time(time_s: float) -> str:
    """A time as Slurm reads it: `D-HH:MM:SS`, in whole minutes, since Slurm counts in these."""
    minutes = max(1, int(time_s // 60))
    return f"{minutes // 1440}-{minutes // 60 % 24:02d}:{minutes % 60:02d}:00"


def parse_time_s(text: str) -> float:
    """Time (s) of a limit: `4h`, `90min`, or as Slurm writes it, `4:00:00` and `1-12:00:00`.

    Raises:
        ValueError: The text is neither.
    """
    if ":" not in text:
        return parse_duration_s(text)
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not (days.isdecimal() if dash else not days) or len(parts) > 3 or not all(part.isdecimal() for part in parts):
        raise ValueError("expected a time such as 4h or 4:00:00")
    numbers, missing = [int(part) for part in parts], [0] * (3 - len(parts))
    hours, minutes, seconds = numbers + missing if dash else missing + numbers
    return int(days or 0) * 86_400.0 + hours * 3_600.0 + minutes * 60.0 + seconds
