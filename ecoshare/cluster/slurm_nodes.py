"""Nodes of a Slurm allocation for a run: a step of Slurm starts an agent on each, and carries its lines.

::

    run, in the allocation ──► srun ──► slurmstepd on the node ──► agent
                               pipes    Slurm

Nothing else is started. A step takes some tenths of a second, and a line some tenths of a millisecond. When `srun` or
the run dies, Slurm ends the step, and the guard of the node ends all that the agent has started.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from ecoshare.base.plural import counted
from ecoshare.cluster.links import NodeStart, ProcessLink, agent_command
from ecoshare.cluster.node_cluster import NodeCluster, held
from ecoshare.cluster.nodes_request import NodesRequest
from ecoshare.cluster.slurm_script import asked, fields
from ecoshare.errors import UnfitEnvironment
from ecoshare.record.run_data import is_live
from ecoshare.record.run_folder import RunFolder

_ENDS_WITHIN_S, _LOOK_S = 300.0, 1.0
"""Longest time (s) to wait for the end of an earlier start of the same Slurm job, and between two looks."""

_changing = threading.Lock()
"""Held while an allocation is changed: what is left is read and written, and several nodes may leave at once."""


@contextlib.contextmanager
def on_slurm(request: NodesRequest, say: Callable[[str], None]) -> Iterator[NodeCluster]:
    """Context manager: hold nodes of the Slurm allocation that this process runs in.

    Args:
        request: The nodes.
        say: Gets a line for each node that is left out.

    Raises:
        UnfitEnvironment: This process is in no allocation, or the allocation has too few nodes.
        UsageError: A device does not exist there.
    """
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        raise UnfitEnvironment(
            "--on slurm runs in an allocation, and this process is in none",
            "`ecoshare slurm submit` asks for one; or run it under `salloc` or `sbatch`",
        )
    names = allocated_nodes(job)
    if request.nodes is not None and len(names) < request.nodes:
        raise UnfitEnvironment(f"--nodes {request.nodes}: the allocation has {counted(len(names), 'node')}")
    options = request.agent_options(request.gpus_per_node)
    starts = [
        NodeStart(
            name,
            name,
            partial(ProcessLink, [*step(job, name), *agent_command(name, options)]),
            partial(_give_back, job, name) if name != os.environ.get("SLURMD_NODENAME") else None,
        )
        for name in names[: request.nodes]
    ]
    with held(starts, request.timeout_s, idle_s=request.idle_s, say=say) as cluster:
        yield cluster


def await_earlier_start(run: Path, say: Callable[[str], None], within_s: float = _ENDS_WITHIN_S) -> None:
    """Wait until an earlier start of this Slurm job does not write its run any more.

    Slurm starts a job again while a machine that it has given up still runs it. The run of that start ends by itself
    once its agents are gone; if it does not, the caller finds the run in progress.

    Args:
        run: The run folder.
        say: Shows a note to the user.
        within_s: Longest time (s) to wait.
    """
    if os.environ.get("SLURM_RESTART_COUNT", "0") == "0" or not is_live(RunFolder(run)):
        return
    say(f"{run} is still going on, where Slurm had started this job before: waiting for its end")
    until_s = time.monotonic() + within_s
    while is_live(RunFolder(run)) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)


def _give_back(job: str, node: str) -> None:
    """Take a node out of an allocation. The node that this process runs on cannot be.

    Raises:
        UnfitEnvironment: Slurm does not let it go.
    """
    # Without the job's variables scontrol writes no script that would change them in a shell.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_JOB")}
    with _changing:
        left = [name for name in allocated_nodes(job) if name != node]
        asked(["scontrol", "update", f"JobId={job}", f"NodeList={','.join(left)}"], environment=environment)


def step(job: str, node: str) -> list[str]:
    """Beginning of a command line that runs one program on a node of an allocation, beside its other steps.

    Args:
        job: ID of the Slurm job.
        node: Name of the node.
    """
    return ["srun", f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--unbuffered"]


def allocated_nodes(job: str) -> list[str]:
    """Names of the nodes that an allocation has now. Its variables also have those that were given back.

    Args:
        job: ID of the Slurm job.

    Raises:
        UnfitEnvironment: Slurm does not tell them.
    """
    held_now = fields(asked(["scontrol", "--oneliner", "show", "job", job])).get("NodeList", "")
    if not (names := asked(["scontrol", "show", "hostnames", held_now]).split()):
        raise UnfitEnvironment("Slurm names no node of the allocation", f"see `scontrol show job {job}`")
    return names
