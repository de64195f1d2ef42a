"""Options that several commands share: of runs, queues, clusters, Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ecoshare.cli import completion
from ecoshare.errors import UsageError

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
DeviceOption = Annotated[
    str | None,
    typer.Option(help="cpu, cuda or cuda:N; the first GPU, else the processors.", autocompletion=completion.devices),
]
RunDeviceOption = Annotated[
    str | None,
    typer.Option(
        help="Devices: names such as cuda:0,cuda:2; all; cpu, or cpu/N for N partitions of the processors. Default: "
        "all GPUs of one model, else the processors.",
        autocompletion=completion.run_devices,
    ),
]
ProfilesOption = Annotated[
    Path | None, typer.Option("--profiles", help="Folder that holds profiles; else that of the user's data.")
]
WaitOption = Annotated[
    bool | None,
    typer.Option(
        "--wait/--no-wait",
        help="Wait for the end of a run that uses a device of this one, as it is the default; or be refused.",
    ),
]
ShareOption = Annotated[
    bool, typer.Option("--share-device", help="Run beside a run that uses a device of this one, with its free memory.")
]
RunsOption = Annotated[Path, typer.Option("--runs", help="Folder that holds run folders.")]


def waits(wait: bool | None, share_device: bool = False, on: str | None = None) -> bool:
    """Whether a command waits for the end of a run that uses its device: by default where it could not begin."""
    return not (share_device or on) if wait is None else wait


OnOption = Annotated[
    str | None,
    typer.Option(
        "--on", metavar="ray|slurm", help="Run the jobs on the machines of a Ray cluster, or of the Slurm allocation."
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT|auto", help="Ray cluster of --on ray. Default: one of this machine alone, for this run."
    ),
]
NodesOption = Annotated[int | None, typer.Option(help="Number of machines of the cluster. Default: all.")]
GpusPerNodeOption = Annotated[int | None, typer.Option(help="Number of GPUs of each machine. Default: all.")]
ShipOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder with scripts and data to copy to each machine of --on ray."),
]
ReleaseIdleOption = Annotated[
    str | None,
    typer.Option("--release-idle", metavar="TIME", help="Give a machine back after this time without a job."),
]
NodeTimeoutOption = Annotated[
    float, typer.Option("--node-timeout", help="Seconds of silence after which a machine of the cluster is lost.")
]


ObjectiveOption = Annotated[
    str, typer.Option(help="energy, jct, makespan or edp.", autocompletion=completion.objectives)
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        help="fair, fifo, pack, priority, srtf, tiresias, ...; by default the objective chooses it.",
        autocompletion=completion.policies,
    ),
]
PolicyParameters = Annotated[
    list[str] | None,
    typer.Option(help="A parameter of the policy named by --policy, such as limit_1=3600; may be repeated."),
]
DeviceCountOption = Annotated[
    int | None, typer.Option(help="Number of devices: the first of those that --device names. Default: all.")
]
LanesOption = Annotated[
    int | None,
    typer.Option(
        help="Lanes of each device: jobs of one lane take turns, lanes run side by side. Default: 6 if the policy "
        "chooses which jobs run beside each other, else 1."
    ),
]
JobsPerLaneOption = Annotated[
    int | None, typer.Option(help="Largest number of jobs that hold memory in one lane at once.")
]
MemoryOption = Annotated[str | None, typer.Option(help="Memory limit for all jobs of a device, such as '8 GiB'.")]
HostMemoryOption = Annotated[
    str | None,
    typer.Option(
        help="Host memory of a machine for parked jobs, such as '16 GiB': a running job waits with its memory there "
        "while a job that the policy puts before it has its place. Default: no job is parked."
    ),
]
PowerBudgetOption = Annotated[
    str | None,
    typer.Option(
        help="Power that all devices together may draw, such as '1200 W'. Watts go where they buy most of the "
        "objective. Default: no budget."
    ),
]
PowerBudgetByOption = Annotated[
    str,
    typer.Option(
        metavar="limits|placement",
        help="Way to keep the power budget: limits sets power limits of the devices, placement sets nothing, and "
        "starts a job only if the modelled power stays within the budget.",
    ),
]
ControlOption = Annotated[
    str,
    typer.Option(
        metavar="auto|known|off",
        autocompletion=completion.controls,
        help="Control of clocks and power: auto searches the best setting of each packing and uses it, known uses "
        "settings from earlier searches only, off sets nothing.",
    ),
]
TuningLimitOption = Annotated[
    float,
    typer.Option(help="Limit on the time of an iteration at a setting, relative to the default setting."),
]
NoProfilesOption = Annotated[
    bool, typer.Option("--no-profiles", help="Use no profiles of job classes, and measure none.")
]


JobFileArgument = Annotated[Path, typer.Argument(metavar="JOBS.YAML", help="A job file.")]
AllocationNodesOption = Annotated[int, typer.Option("--nodes", help="Number of machines.")]
AllocationGpusOption = Annotated[
    int | None,
    typer.Option("--gpus-per-node", help="Number of GPUs of each machine. Default: none, the jobs use the processors."),
]
AllocationCpusOption = Annotated[
    int | None,
    typer.Option("--cpus-per-node", help="Number of processors of each machine. Default: what the partition gives."),
]
TimeOption = Annotated[
    str | None,
    typer.Option("--time", metavar="TIME", help="Time limit, such as 4h or 4:00:00. Default: of the partition."),
]
PartitionOption = Annotated[str | None, typer.Option("--partition", help="Partition. Default: that of the cluster.")]
StopBeforeOption = Annotated[
    str, typer.Option("--stop-before", metavar="TIME", help="Time before the limit at which jobs are asked to stop.")
]
SlurmNameOption = Annotated[
    str | None, typer.Option("--name", help="Name of the Slurm job. Default: that of the job file.")
]
SharedRunsOption = Annotated[
    Path | None, typer.Option("--runs", metavar="DIR", help="Folder for the run, which all machines share.")
]
SbatchOption = Annotated[
    list[str] | None,
    typer.Option("--sbatch", metavar="OPTION", help="Option of sbatch, such as --account=lab; may be repeated."),
]


QueueOption = Annotated[
    str,
    typer.Option(
        "--name", "--queue", help="Name of the queue.", autocompletion=completion.queues, envvar="ECOSHARE_QUEUE"
    ),
]
JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="Job of the queue.", autocompletion=completion.queued_jobs)
]
SomeJobsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[JOB]...", help="Jobs of the queue.", autocompletion=completion.queued_jobs),
]
EndedJobsArgument = Annotated[
    list[str], typer.Argument(metavar="JOB...", help="Jobs of the queue.", autocompletion=completion.ended_jobs)
]
JobsArgument = Annotated[
    list[str], typer.Argument(metavar="JOB...", help="Jobs of the queue.", autocompletion=completion.queued_jobs)
]


def age_s(text: str, option: str) -> float:
    """Age in seconds.

    Raises:
        UsageError: The text is no age, or has no unit.
    """
    from ecoshare.jobs.quantities import parse_duration_s

    try:
        if not text[-1:].isalpha():  # a bare number is seconds elsewhere: a lot would be removed by mistake
            raise ValueError(f"expected an age with its unit, such as 30d or 12h, got {text!r}")
        return parse_duration_s(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
