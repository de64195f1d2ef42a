"""`ecoshare run`."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ecoshare.advisers.advice import TUNING_LIMIT
from ecoshare.cli import completion
from ecoshare.cli.classes import words_after
from ecoshare.cli.options import DeviceOption, JsonOption, ProfilesOption, RunsOption, ShareOption, WaitOption, goal
from ecoshare.cli.output import note, progress
from ecoshare.common.folders import RUNS
from ecoshare.common.plural import counted
from ecoshare.errors import Interrupted, JobFailed, LimitNotMet, UsageError, did_you_mean

JobsArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="JOBS.YAML | SCRIPT.PY",
        help="A job file; see `ecoshare init`. Or scripts, one job each; all get the arguments after `--`.",
    ),
]


class ControlMode(Enum):
    """Whether a run may set clocks and power; the help of `--control` explains the values."""

    AUTO = "auto"
    KNOWN = "known"
    OFF = "off"


def run(
    context: typer.Context,
    jobs: JobsArgument = None,
    objective: Annotated[
        str, typer.Option(help="energy, jct, makespan or edp.", autocompletion=completion.objectives)
    ] = "energy",
    policy: Annotated[
        str | None,
        typer.Option(
            help="fair, fifo, pack, priority, srtf, tiresias, ...; by default the objective chooses it.",
            autocompletion=completion.policies,
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="A parameter of the policy named by --policy, such as limit_1=3600; may be repeated."),
    ] = None,
    device: DeviceOption = None,
    lanes: Annotated[
        int | None,
        typer.Option(
            help="Lanes: jobs of one lane take turns, lanes run side by side. Default: 6 if the policy chooses which "
            "jobs run beside each other, else 1."
        ),
    ] = None,
    jobs_per_lane: Annotated[
        int | None, typer.Option(help="Largest number of jobs that hold memory in one lane at once.")
    ] = None,
    memory: Annotated[str | None, typer.Option(help="Memory limit for all jobs together, such as '8 GiB'.")] = None,
    control: Annotated[
        str,
        typer.Option(
            metavar="auto|known|off",
            autocompletion=completion.controls,
            help="Control of clocks and power: auto searches the best setting of each packing and uses it, known uses "
            "settings from earlier searches only, off sets nothing.",
        ),
    ] = ControlMode.AUTO.value,
    tuning_limit: Annotated[
        float,
        typer.Option(help="Limit on the time of an iteration at a setting, relative to the default setting."),
    ] = TUNING_LIMIT,
    wait: WaitOption = False,
    share_device: ShareOption = False,
    runs: RunsOption = RUNS,
    profiles: ProfilesOption = None,
    no_profiles: Annotated[
        bool, typer.Option("--no-profiles", help="Use no profiles of job classes, and measure none.")
    ] = False,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Run folder of an interrupted run to resume.", autocompletion=completion.runs),
    ] = None,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Draw no report.html and no trace.pftrace at the end.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and start nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run the jobs of a file, or scripts, sharing the device between them."""
    from ecoshare.devices.processor_load import LoadWatch

    watch = LoadWatch.begin()  # watches until the plan is made, so it costs no extra time
    from ecoshare.devices.occupancy import DeviceAdmission, occupied
    from ecoshare.devices.registry import find
    from ecoshare.jobs.from_scripts import named_jobs
    from ecoshare.jobs.quantities import parse_size_bytes
    from ecoshare.profiling.profile_store import ProfileStore, default_folder
    from ecoshare.runtime import plan as planning
    from ecoshare.runtime import run_opening
    from ecoshare.values.device import DeviceInfo

    errors = Console(stderr=True, highlight=False)
    may_set = _control(control)
    admission = DeviceAdmission.of(wait, share_device)
    if resume is not None:
        if jobs or words_after(context):
            raise UsageError("--resume takes the jobs from the run; give one or the other")
        given = (policy, option, device, jobs_per_lane, memory, profiles) != (None,) * 6
        given = given or lanes is not None or objective != "energy" or tuning_limit != TUNING_LIMIT
        if given or dry_run or no_profiles:
            raise UsageError(
                "--resume takes its options from the run; only --control, --json and --no-report go with it"
            )
        result = run_opening.resume(
            resume, progress(errors), may_set is not ControlMode.OFF, may_set is ControlMode.AUTO, admission, note
        )
        if not result.ran:
            errors.print(f"note: every job of {resume} has ended already; there is nothing to go on with", markup=False)
    else:
        if not jobs:
            raise UsageError(
                "give a job file, scripts, or --resume RUN", "`ecoshare init` writes a job file to begin with"
            )
        try:
            memory_bytes = parse_size_bytes(memory) if memory is not None else None
        except ValueError as error:
            raise UsageError(f"--memory {memory}: {error}") from error
        if option and policy is None:
            raise UsageError("--option is a policy's: name it with --policy")
        loaded = named_jobs(jobs, words_after(context))

        def planned(on: DeviceInfo) -> planning.Plan:
            plan = planning.make(
                loaded,
                on,
                objective=objective,
                policy=policy,
                options=tuple(option or ()),
                lanes=lanes,
                places=jobs_per_lane if jobs_per_lane is not None else planning.PLACES,
                memory_bytes=memory_bytes,
                store=None if no_profiles else ProfileStore(profiles or default_folder()),
                control=may_set is not ControlMode.OFF,
                goal=goal(objective, tuning_limit, planning.MOST_TRIALS) if may_set is ControlMode.AUTO else None,
            )
            for line in plan.notes:
                note(line)
            return plan

        if dry_run:
            _print_plan(planned(find(device)).as_dict(), as_json)
            return
        with occupied(device, admission, note) as occupancy:
            plan = planned(occupancy.device)
            if words := watch.words():
                note(f"{words}: times and joules of this run are those of a busy machine")
            result = run_opening.start(plan, loaded.text, runs, progress(errors), occupancy=occupancy)

    from ecoshare.reporting import end_of_run  # imported only now, so that the run does not wait for it
    from ecoshare.reporting.fused_words import fused_words
    from ecoshare.reporting.run_table import print_summary
    from ecoshare.runtime.device_claim import not_restored

    for line in result.notes:
        note(line)
    summary = result.data.summary
    if as_json:
        print(json.dumps(summary, indent=2), flush=True)
    else:
        print_summary(summary, Console(highlight=False))
        for line in fused_words(result.data.entries):
            print(line, flush=True)
    # The report comes last: it takes a second or two, and the user should not wait for the table.
    if not no_report and end_of_run.draw(result.folder, result.data, note) and not as_json:
        print(f"report: {summary['run']}/{result.folder.report.name}", flush=True)
    if result.unrestored:
        raise not_restored(result.unrestored)
    _judge(summary)


def _control(name: str) -> ControlMode:
    names = [each.value for each in ControlMode]
    if name not in names:
        raise UsageError(
            f"--control {name}: expected {', '.join(names[:-1])} or {names[-1]}", did_you_mean(name, names)
        )
    return ControlMode(name)


def _print_plan(plan: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(plan, indent=2))
        return
    from ecoshare.reporting.plan_text import print_plan

    print_plan(plan, Console(highlight=False))


def _judge(summary: dict[str, Any]) -> None:
    """Raise the error that a result deserves, and so choose the exit code; return if all went well."""
    from ecoshare.record.summary import outcomes

    if summary["state"] == "interrupted":
        raise Interrupted("the run was stopped", f"`ecoshare run --resume {summary['run']}` goes on with it")
    states = outcomes(summary)
    bad = [name for name, state in states.items() if state != "completed"]
    if bad:
        said = next((job["name"] for job in summary["jobs"] if bad[0] in (job["name"], job["sweep"])), bad[0])
        raise JobFailed(
            f"{len(bad)} of {counted(len(states), 'job')} did not complete: {', '.join(bad[:5])}",
            f"what they said is in {summary['run']}/jobs/{said}/stderr.log" + (" and so on" if len(bad) > 1 else ""),
        )
    broken = [job["name"] for job in summary["jobs"] if job["slowdown_limit_met"] is False]
    if broken:
        raise LimitNotMet(f"slower than their `slowdown:` limit: {', '.join(broken[:5])}")
