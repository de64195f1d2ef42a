"""A real Slurm of several nodes on this machine: its daemons listen on loopback, and end with the context."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.warm import wait_for

_CONF = """\
ClusterName=eco
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
SlurmctldPort={port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
ReturnToService=2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0
SlurmdTimeout=10
KillWait=20
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
"""


def is_installed() -> bool:
    """Whether the daemons of Slurm are there."""
    return all(shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") for name in ("slurmctld", "slurmd", "srun"))


@contextlib.contextmanager
def slurm(nodes: int, gpus: int = 0, epilog: Path | None = None) -> Iterator[Path]:
    """Context manager: path of the configuration of a cluster, all idle.

    Args:
        nodes: Number of nodes.
        gpus: Number of GPUs that Slurm gives on each node. Their device files are those of anything.
        epilog: Script that each node runs at the end of a job; None for none.
    """
    with tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder, host = Path(name), socket.gethostname().partition(".")[0]
        (folder / "state").mkdir()
        with contextlib.ExitStack() as held:
            ports = [held.enter_context(socket.socket()) for _ in range(nodes + 1)]
            for each in ports:
                each.bind(("127.0.0.1", 0))
            port, *others = (each.getsockname()[1] for each in ports)
        lines = _CONF.format(host=host, user=getpass.getuser(), port=port, folder=folder)
        for number, other in enumerate(others, start=1):
            lines += f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={other} CPUs=8 RealMemory=4000"
            lines += f" Gres=gpu:{gpus}\n" if gpus else "\n"
        lines += "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        lines += "PartitionName=first Nodes=ALL PriorityTier=9 State=UP\n"  # a job of it preempts those of `main`
        if gpus:
            lines += "GresTypes=gpu\n"
            files = ("null", "zero", "full", "random")[:gpus]
            nodes_of = f"NodeName=n[1-{nodes}] Name=gpu File=/dev/"
            (folder / "gres.conf").write_text("".join(f"{nodes_of}{each}\n" for each in files))
        if epilog is not None:
            lines += f"Epilog={epilog}\n"
        conf = folder / "slurm.conf"
        conf.write_text(lines)
        environment = {**os.environ, "SLURM_CONF": str(conf), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
        try:
            for words in (["slurmctld", "-i"], *(["slurmd", "-N", f"n{number + 1}"] for number in range(nodes))):
                subprocess.run([*words, "-f", str(conf)], env=environment, check=True, stdout=subprocess.DEVNULL)
            wait_for(lambda: _idle(environment) == nodes)
            yield conf
        finally:
            for path in folder.glob("*.pid"):
                with contextlib.suppress(OSError, ValueError):
                    daemon = int(path.read_text())
                    os.kill(daemon, signal.SIGTERM)
                    wait_for(lambda daemon=daemon: not Path(f"/proc/{daemon}").exists())  # type: ignore[misc]


def _idle(environment: dict[str, str]) -> int:
    said = subprocess.run(
        ["sinfo", "-h", "-N", "-p", "main", "-o", "%T"], env=environment, capture_output=True, text=True
    ).stdout
    return said.split().count("idle")


def processes_on(node: str, job: int, folder: Path) -> list[int]:
    """Processes of a Slurm job on a node of this machine.

    Args:
        folder: Folder in which the job was submitted: clusters of other tests have equal names and numbers.
    """
    words = (f"SLURMD_NODENAME={node}", f"SLURM_JOB_ID={job}", f"SLURM_SUBMIT_DIR={folder}")
    marks, found = {each.encode() for each in words}, list[int]()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if marks <= set((path / "environ").read_bytes().split(b"\0")):
                found.append(int(path.name))
    return found
