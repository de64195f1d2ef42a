"""The commands of docs/cluster.md and docs/chains.md run on a real Ray and a real Slurm, and their jobs complete.

A command runs as its page shows it, with two changes: `PLACES` replaces the places of the page, and `ADDED` appends the
options that a machine without GPUs needs. `NOT_RUN` lists each line that does not run, with the reason. Any other line
fails the test.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ecoshare.base.attempt import Outcome
from ecoshare.core.events import JobExited
from ecoshare.record import event_log, run_documents
from ecoshare.record.run_folder import RunFolder
from tests import warm
from tests.cluster.agents import members
from tests.cluster.ray_cluster import ray_cluster
from tests.cluster.slurm_cluster import is_installed, slurm
from tests.cluster.test_slurm_run import is_over, state
from tests.docs.examples import Block, blocks
from tests.runtime.running import job_file
from tests.warm import ROOT, wait_for

PLACES = {
    # on the page                           here
    "--address first:6379": "--address {ray}",
    "/shared/runs": "{work}/runs",
    "--partition gpu": "--partition main",
    "--gpus-per-node 4 ": "",  # the small Slurm has processors alone
    # A job of Ray, and an epilog of Slurm, are commands with an environment of their own.
    "ray job submit --no-wait -- ": "RAY_ADDRESS={ray} ",  # submitting needs the dashboard: `ray[default]`
    'runuser -u "$SLURM_JOB_USER" -- ': "ECOSHARE_STATE={state} ",  # tests/cluster/test_slurm_gpus.py has the epilog
    " || true": "",
}
"""Replacements in the commands. Numbers of nodes and time limits stay: both clusters have two nodes and no limit."""

ADDED = {
    "run --resume": "--share-device",
    "run": "--device cpu --share-device",
    "up --detach": "--device cpu --share-device",
    "up": "--device cpu --share-device",
    "submit": "",
    "restore": "",
    "slurm submit": "-- --share-device",
    "slurm chain": "-- --share-device",
}
"""Options that are appended, by the first words of a command. The nodes are one machine here, so they share it.
The first entry that fits counts; `CHECKS` says how its commands run."""

NOT_RUN = {
    "pip install 'ecoshare[ray]'": "this source and Ray are installed already",
    "ray start --head --port 6379": "the fixture starts the head, at a free port of a loopback address",
    "ray start --address first:6379": "the fixture starts the other node, at a loopback address of its own",
}
"""Lines that do not run, with the reason."""

PAGES = [ROOT / "docs" / name for name in ("cluster.md", "chains.md")]
BLOCKS = [block for page in PAGES for block in blocks(page) if block.language == "bash"]
MARK = Path(__file__).relative_to(ROOT).as_posix()

_COMMAND = re.compile(r"(?:env )?(?:[A-Z_]+=\S+ )*ecoshare (?P<words>[^;&|<>]+)")
_ENDS_WITHIN_S = 150.0

_SCRIPT = """
import sys, time
from pathlib import Path
import torch

model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(60):
    loss = model(torch.ones(32, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(Path(__file__).absolute().parent, flush=True)
if len(sys.argv) > 1 and not (first := Path(sys.argv[1])).exists():
    first.touch()
    time.sleep(1000)
"""
"""Script of the jobs. With an argument, its first attempt makes a file of this name, and does not end by itself."""


def commands(block: Block) -> list[str]:
    """Command lines of a block, without comments; a line that goes on after a backslash is one."""
    lines = [re.sub(r"(^|\s+)#.*", "", line).strip() for line in block.text.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line]


def kind(command: str) -> str:
    """Key of `ADDED` and `CHECKS` for a command with the places of this machine.

    Raises:
        AssertionError: It is no single command of ecoshare, or one that no test here knows.
    """
    for place, here in PLACES.items():
        command = command.replace(place, here)
    found = _COMMAND.fullmatch(command)
    words = found["words"].split() if found is not None else []
    for each in ADDED:
        if words[: len(each.split())] == each.split():
            return each
    raise AssertionError(f"`{command}` is neither run nor in NOT_RUN")


@dataclass
class Shell:
    """Commands in an empty folder, with a state folder of their own.

    Attributes:
        work: Working folder. It has `jobs.yaml` with the jobs `j0` and `j1`.
        environment: Environment of the commands.
        places: Values for the names in `PLACES`.
        queues: Names of the queues that the commands have opened.
        served: Queues that are no processes in the background, by name.
    """

    work: Path
    environment: dict[str, str]
    places: dict[str, str]
    queues: list[str] = field(default_factory=list)
    served: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def here(self, command: str) -> str:
        """Command of a page with the places of this machine, and with the options that it needs."""
        more = ADDED[kind(command)]
        for place, here in PLACES.items():
            if place in command:
                command = command.replace(place, here.format(**self.places))
        return f"{command} {more}".strip()

    def run(self, command: str) -> str:
        """Run a command, which must exit with 0; returns what it printed."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.work,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=_ENDS_WITHIN_S,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, f"{command}\n{done.stderr}"
        return done.stdout

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """Start a command, which bash becomes."""
        with self.output.open("wb") as out:
            words = ["bash", "-c", command]
            return subprocess.Popen(words, cwd=self.work, env=self.environment, stdout=out, stderr=out)

    @property
    def output(self) -> Path:
        """Output of the last command that was started."""
        return self.work.parent / "output.log"

    def answers(self, queue: str) -> bool:
        """Whether a queue answers."""
        return self.forked("status", "--queue", queue).returncode == 0

    def forked(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command that no page shows, which a loaded process forks."""
        done = warm.ecoshare(*words, cwd=self.work, environment=self.environment)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def asked(self, *words: str) -> str:
        """Output of such a command, which must exit with 0."""
        done = self.forked(*words)
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout

    def locks(self) -> list[Path]:
        """Lock of each queue. The text in it is the process that serves the queue, and empty if none does."""
        return list(Path(self.environment["ECOSHARE_STATE"]).glob("**/queues/*/lock"))

    def close_queues(self) -> None:
        """Give each queue jobs, if its commands have given none, check that they complete, and end the queue."""
        for queue in self.queues:
            status = ("status", "--json", "--queue", queue)
            if not json.loads(self.asked(*status))["jobs"]:
                self.asked("submit", "jobs.yaml", "--wait", "--queue", queue)
            shown = json.loads(self.asked(*status))
            assert len(shown["devices"]) == 2, "both nodes"
            jobs = shown["jobs"]
            assert sorted((each["name"], each["state"]) for each in jobs) == [("j0", "completed"), ("j1", "completed")]
            self.asked("down", "--queue", queue)
        for process in self.served.values():
            assert process.wait(60.0) == 0
        wait_for(lambda: not any(each.read_text() for each in self.locks()))

    def kill_queues(self) -> None:
        """End the queues that a failed test has left."""
        for lock in self.locks():
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(lock.read_text()), signal.SIGKILL)
        for process in self.served.values():
            process.kill()
            process.wait()


def option(command: str, name: str, default: str) -> str:
    """Value of an option in a command."""
    words = shlex.split(command)
    return words[words.index(name) + 1] if name in words else default


def check_run(run: Path, nodes: int, attempts: tuple[int, int] = (1, 1)) -> None:
    """Check that both jobs of a run have completed, that it had so many nodes, and that nothing is left of it.

    Args:
        run: Folder of the run.
        nodes: Number of nodes.
        attempts: Number of the attempt in which each job has completed.
    """
    ends = [each for each in event_log.read(run / "events.jsonl") if isinstance(each, JobExited)]
    completed = sorted((each.job, each.attempt) for each in ends if each.outcome is Outcome.COMPLETED)
    assert completed == list(zip(("j0", "j1"), attempts, strict=True)), ends
    assert len(run_documents.read_environment(RunFolder(run).environment)["nodes"]) == nodes
    for _, logged, now in event_log.replay(event_log.read(run / "events.jsonl")):
        assert logged == now
    assert not members(run)


def _run(shell: Shell, command: str) -> None:
    shell.run(command)
    run = shell.work / option(command, "--runs", "ecoshare-runs") / "latest"
    check_run(run, nodes=2)
    is_shipped = ["/shipped/" in (RunFolder(run).job(job) / "stdout.log").read_text() + "/" for job in ("j0", "j1")]
    assert is_shipped == ["--ship" in command] * 2, "the script runs where its page says"


def _run_resume(shell: Shell, command: str) -> None:
    """Kill a run of which one job has completed and the other has not, then go on with it."""
    run = Path(option(command, "--resume", ""))
    write_jobs(shell.work, "first")
    begun = shell.start(command.replace(f"--resume {run}", f"jobs.yaml --runs {run.parent} --device cpu"))
    try:
        wait_for(lambda: begun.poll() is not None or ((shell.work / "first").exists() and _has_ended(run, "j0")))
        assert begun.poll() is None, shell.output.read_text()
    finally:
        begun.kill()
        begun.wait()
    wait_for(lambda: not members(run))
    here = shell.forked("run", "--resume", str(run))
    assert here.returncode == 2 and "give `--on ray` again" in here.stderr
    shell.run(command)
    check_run(run, nodes=2, attempts=(1, 2))


def _has_ended(run: Path, job: str) -> bool:
    log = run / "events.jsonl"
    return log.exists() and any(isinstance(each, JobExited) and each.job == job for each in event_log.read(log))


def _up_detach(shell: Shell, command: str) -> None:
    shell.run(command)
    shell.queues.append(option(command, "--name", "default"))


def _up(shell: Shell, command: str) -> None:
    queue = option(command, "--name", "default")
    shell.served[queue] = process = shell.start(command)
    wait_for(lambda: shell.answers(queue) or process.poll() is not None)
    assert process.poll() is None, shell.output.read_text()
    shell.queues.append(queue)


def _submit(shell: Shell, command: str) -> None:
    assert shell.queues, "a block opens the queue that it submits to"
    shell.run(command)


def _restore(shell: Shell, command: str) -> None:
    assert f"nothing to restore: no run has left anything in {shell.places['state']}" in shell.run(command)


def _slurm_submit(shell: Shell, command: str) -> None:
    job = int(shell.run(command).split()[2].rstrip(":"))
    wait_for(lambda: is_over(job, shell.environment), _ENDS_WITHIN_S)
    runs = shell.work / "ecoshare-runs"
    assert state(job, shell.environment) == "COMPLETED", (runs / f"slurm-{job}.out").read_text()
    check_run(runs / f"slurm-{job}" / "latest", nodes=int(option(command, "--nodes", "1")))


def _slurm_chain(shell: Shell, command: str) -> None:
    shell.run(command)
    chain = shell.work / "ecoshare-runs" / "chain-jobs"
    record = json.loads((chain / "chain.json").read_text())
    assert record["outcome"] == "done" and record["allocations"]
    jobs = [each["job"] for each in record["allocations"] if each["job"] is not None]
    wait_for(lambda: all(state(each, shell.environment) == "COMPLETED" for each in jobs))
    check_run(chain / "latest", nodes=int(option(command, "--nodes", "1")))


CHECKS: dict[str, Callable[[Shell, str], None]] = {
    "run --resume": _run_resume,
    "run": _run,
    "up --detach": _up_detach,
    "up": _up,
    "submit": _submit,
    "restore": _restore,
    "slurm submit": _slurm_submit,
    "slurm chain": _slurm_chain,
}
"""Functions that run a command and check what it has done, by the keys of `ADDED`."""


def write_jobs(folder: Path, *args: str) -> None:
    """Write `jobs.yaml` with two short jobs; the arguments are those of the second one."""
    (folder / "train.py").write_text(_SCRIPT)
    job_file(folder, {"name": "j0", "script": "train.py"}, {"name": "j1", "script": "train.py", "args": list(args)})


@pytest.fixture(scope="module")
def ray() -> Iterator[str]:
    """Address of a Ray cluster of two nodes."""
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    with ray_cluster(2, network=4) as started:
        yield started.address


@pytest.fixture(scope="module")
def slurm_conf() -> Iterator[str]:
    """Configuration of a Slurm of two nodes."""
    if not is_installed():
        pytest.skip("Slurm is not installed: apt-get install slurm-wlm")
    with slurm(2) as conf:
        yield str(conf)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Shell with `jobs.yaml` in its folder. Queues that a failed test has left end with it."""
    (work := tmp_path / "work").mkdir()
    write_jobs(work)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "ECOSHARE_STATE": str(tmp_path / "state"),
    }
    for name in ("ECOSHARE_QUEUE", "RAY_ADDRESS"):
        environment.pop(name, None)
    made = Shell(work, environment, {"work": str(work), "state": str(tmp_path / "state-of-job")})
    yield made
    made.kill_queues()


RUN = [each for each in BLOCKS if set(commands(each)) - set(NOT_RUN)]
"""Blocks with commands that run. Two pages show one and the same: it runs once."""


def name(block: Block) -> str:
    return f"{block.page.name}:{block.line}"


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("block", {tuple(commands(each)): each for each in RUN}.values(), ids=name)
def test_the_commands_of_a_block_run(block: Block, shell: Shell, request: pytest.FixtureRequest) -> None:
    """If it failed, a command of the page would not do what the page says."""
    for command in commands(block):
        if command in NOT_RUN:
            continue
        if "ray" in command:
            shell.places["ray"] = request.getfixturevalue("ray")
        elif "slurm" in command:
            shell.environment["SLURM_CONF"] = request.getfixturevalue("slurm_conf")
        CHECKS[kind(command)](shell, shell.here(command))
    shell.close_queues()


def test_every_command_is_run_or_listed() -> None:
    """If it failed, a page could show a command that nothing runs."""
    assert CHECKS.keys() == ADDED.keys()
    for block in BLOCKS:
        run = [kind(command) for command in commands(block) if command not in NOT_RUN]
        assert block.mark("run by") == (MARK if run else None), f"{name(block)}: its comment is wrong"
    shown = {command for block in BLOCKS for command in commands(block)}
    assert not NOT_RUN.keys() - shown, "no page shows these lines"
    assert shown - NOT_RUN.keys()
    for page in PAGES:
        for block in blocks(page):
            is_command = re.search(r"^(\$ |.*\becoshare )", block.text, re.MULTILINE)
            assert block.language == "bash" or not is_command, f"{name(block)}: is it ```bash?"


@pytest.mark.parametrize(
    "line", ["ecoshare simulate a.csv", "ecoshare submit a.yaml; ls", "cd /tmp && ecoshare restore", "ray stop", "make"]
)
def test_a_command_that_is_not_known_is_refused(line: str) -> None:
    """If it failed, the test above could pass a line that nothing runs."""
    with pytest.raises(AssertionError, match="neither run nor in NOT_RUN"):
        kind(line)
