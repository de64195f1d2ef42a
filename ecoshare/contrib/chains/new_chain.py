"""A new chain of allocations: its partition, its limit and its rule, checked before anything is submitted."""

from __future__ import annotations

import contextlib
import shlex
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshare.api.request_values import silent
from ecoshare.api.slurm_submit import SubmitRequest, duration_option_s
from ecoshare.base.plural import counted
from ecoshare.contrib.chains.allocation_chain import AllocationChain, ChainOutcome, Overlap
from ecoshare.errors import EcoshareError, UnfitEnvironment, UsageError, did_you_mean
from ecoshare.jobs.quantities import format_duration
from ecoshare.option_fields import request_class

if TYPE_CHECKING:
    from ecoshare.cluster.slurm_script import AllocationRequest
    from ecoshare.contrib.chains.chain_rule import ChainRule
    from ecoshare.contrib.chains.logs.batch_job import BatchJob
    from ecoshare.contrib.chains.slurm_queue import Partition


_MOST_ALLOCATIONS = 10_000
"""Largest number of allocations that a user may ask for. A date without hyphens is a larger one."""


@request_class
class ChainRequest(SubmitRequest):
    """Request for a chain of allocations. The fields are options of `ecoshare slurm chain`.

    Attributes:
        until: `done`, a number of allocations, a time such as `3d` or a date, after which none is submitted. overlap:
        Conduct of a successor that comes early: `idle` or `take-over`. predictor: Name of the predictor of waits, see
        `ecoshare.contrib.chains.chain_rule`; None for the best that the log
            allows.
        margin: Time that is added to each predicted wait; None for that of the back test, else 0.
        note: Shows a note to the user.
        say: Shows what happens to the chain.
    """

    until: str = "done"
    overlap: str = "take-over"
    predictor: str | None = None
    margin: str | None = None
    note: Callable[[str], None] = silent
    say: Callable[[str], None] = silent


def check_words(request: ChainRequest) -> None:
    """Check the words of a request.

    Raises:
        UsageError: One is not known.
    """
    from ecoshare.contrib.chains.chain_rule import PREDICTORS

    overlaps = [each.value for each in Overlap]
    for option, given, known in (
        ("--overlap", request.overlap, overlaps),
        ("--predictor", request.predictor, PREDICTORS),
    ):
        if given is not None and given not in known:
            raise UsageError(f"{option} {given}: expected {', '.join(known)}", did_you_mean(given, known))
    if request.name is not None and (not request.name or "/" in request.name or request.name in (".", "..")):
        raise UsageError(f"--name {request.name!r}: expected the name of a folder")
    if request.margin is not None:
        duration_option_s("--margin", request.margin)


def bounds(text: str, now_s: float) -> tuple[int | None, float | None]:
    """Largest number of allocations, and moment (s) from which none is submitted.

    Raises:
        UsageError: The text is neither.
    """
    if text == "done":
        return None, None
    if text.isdecimal():
        if int(text) < 1:
            raise UsageError(f"--until {text}: expected one allocation or more")
        if int(text) > _MOST_ALLOCATIONS:
            raise UsageError(
                f"--until {text}: expected at most {_MOST_ALLOCATIONS} allocations", "a date is written as 2026-12-01"
            )
        return int(text), None
    with contextlib.suppress(ValueError):
        return None, datetime.fromisoformat(text).timestamp()
    try:
        return None, now_s + duration_option_s("--until", text)
    except UsageError as error:
        raise UsageError(
            f"--until {text}: expected done, a number of allocations, a time such as 3d, or a date such as "
            "2026-12-01T08:00"
        ) from error


def asked_options(request: ChainRequest) -> dict[str, str]:
    """Options that all allocations of a chain have in common, as texts."""
    return {
        "--nodes": str(request.nodes),
        "--gpus-per-node": str(request.gpus_per_node or ""),
        "--cpus-per-node": str(request.cpus_per_node or ""),
        "--time": request.time or "",
        "--partition": request.partition or "",
        "--stop-before": request.stop_before,
        "--sbatch": shlex.join(request.sbatch),
        "words after --": shlex.join(request.options),
    }


def taken_up(now: AllocationChain, request: ChainRequest, allocation: AllocationRequest) -> AllocationChain:
    """The chain as it goes on: with the other bounds that a request may have.

    Raises:
        UsageError: The request has other options or other jobs.
    """
    from ecoshare.jobs.load import load

    check_words(request)
    other = "use the same options, or begin another chain with --name"
    for option, text in asked_options(request).items():
        if now.asked.get(option, "") != text:
            raise UsageError(f"{now.folder} is a chain with {option} {now.asked.get(option) or 'not given'}", other)
    if now.jobs != str(allocation.jobs.absolute()):
        raise UsageError(f"{now.folder} is a chain of {now.jobs}", other)
    if load(allocation.jobs).digest != now.digest:
        raise UsageError(f"{allocation.jobs} has changed since the chain began", "begin another chain with --name")
    if now.outcome is ChainOutcome.DONE:
        return now
    if request.predictor is not None and request.predictor != now.predictor:
        request.note(f"the chain keeps its predictor, {now.predictor}")
    most, until_s = bounds(request.until, time.time())
    now = replace(now, most_allocations=most, until_s=until_s, overlap=Overlap(request.overlap))
    return now if now.outcome is None else going_on(now)


def going_on(now: AllocationChain) -> AllocationChain:
    """A chain with an outcome, without it. Ends of allocations before those that live no longer count."""
    live = (place for place, each in enumerate(now.allocations) if each.is_live)
    return replace(now, outcome=None, code=None, past=next(live, len(now.allocations)), look_s=0.0)


def new_chain(request: ChainRequest, allocation: AllocationRequest, path: Path) -> tuple[AllocationChain, str]:
    """A chain without allocations, and the log of the cluster, empty if there is none."""
    from ecoshare.cluster.slurm_script import heading, resume_options, run_options
    from ecoshare.cluster.slurm_script import notes as allocation_notes
    from ecoshare.contrib.chains import slurm_queue
    from ecoshare.jobs.load import load

    now_s = time.time()
    check_words(request)
    most, until_s = bounds(request.until, now_s)
    where = slurm_queue.partition(request.partition)
    limit_s = allocation.time_s if allocation.time_s is not None else where.default_s
    _check_limit(where, limit_s, allocation)
    resource = slurm_queue.resource_of(allocation.gpus_per_node)
    count = allocation.nodes * (allocation.gpus_per_node or allocation.cpus_per_node or 1)
    total = where.total(resource)
    if where.total("node") < allocation.nodes:
        machines = counted(where.total("node"), "machine")
        raise UnfitEnvironment(f"the partition {where.name} has {machines}, and {allocation.nodes} are asked for")
    if total < count:
        what = "GPU" if allocation.gpus_per_node is not None else "processor"
        raise UnfitEnvironment(f"the partition {where.name} has {counted(total, what)}, and {count} are asked for")
    rule, log, notes = _rule(request, where.name, resource, total, count, limit_s)
    for each in (*notes, *allocation_notes(allocation)):
        request.note(each)
    timed = replace(allocation, time_s=limit_s, partition=where.name, runs=path)
    found = AllocationChain(
        name=allocation.name,
        jobs=str(allocation.jobs.absolute()),
        digest=load(allocation.jobs).digest,
        folder=str(path),
        heading=heading(timed),
        run_options=tuple(run_options(allocation)),
        resume_options=tuple(resume_options(allocation)),
        asked=asked_options(request),
        overlap=Overlap(request.overlap),
        predictor=rule.predictor,
        margin_s=rule.margin_s,
        ahead=rule.ahead,
        limit_s=limit_s,
        stop_s=allocation.stop_s,
        partition=where.name,
        resource=resource,
        count=count,
        total=total,
        nodes=allocation.nodes,
        begun_s=now_s,
        most_allocations=most,
        until_s=until_s,
        notes=tuple(notes),
    )
    return found, log


def _check_limit(where: Partition, limit_s: float, allocation: AllocationRequest) -> None:
    if limit_s == inf:
        raise UsageError(
            f"the partition {where.name} has no time limit, so nothing has to be chained", "give one with --time"
        )
    if limit_s > where.most_s:
        most, asked = format_duration(where.most_s), format_duration(limit_s)
        raise UnfitEnvironment(f"the partition {where.name} allows {most}, and --time asks for {asked}")
    if limit_s < 60.0 or limit_s % 60.0:
        raise UsageError(f"--time {limit_s:g}s: expected whole minutes, since Slurm counts in these")
    if limit_s <= allocation.stop_s:
        raise UsageError(
            f"the limit of {limit_s:g} s leaves no time for the jobs, which stop {allocation.stop_s:g} s before it",
            "give more time, or another --stop-before",
        )


def _rule(
    request: ChainRequest, where: str, resource: str, total: int, count: int, limit_s: float
) -> tuple[ChainRule, str, list[str]]:
    """Rule of a new chain, the log of the cluster, and notes on both."""
    from ecoshare.contrib.chains import chain_rule, slurm_queue
    from ecoshare.contrib.chains.chain_folder import ChainFolder

    name, log, notes = request.predictor, "", list[str]()
    past: tuple[BatchJob, ...] = ()
    if name not in (chain_rule.REACTIVE, chain_rule.PLANNED):
        try:
            log = slurm_queue.log_text(where)
            with tempfile.TemporaryDirectory() as place:
                own = ChainFolder(Path(place))
                own.log.write_text(log)
                past = own.past(resource)
        except EcoshareError as error:
            if name in chain_rule.NEED_LOG:
                raise UnfitEnvironment(
                    f"--predictor {name} learns from the log of the cluster, which does not answer: {error}",
                    "--predictor planned needs none",
                ) from error
            log = ""
            if name == chain_rule.AVERAGE:
                notes.append(f"no log of the cluster ({error}): the mean wait is that of jobs that run now")
        lacking = "" if not log and name is None else chain_rule.why_not_tested(past, limit_s)
        if name is None:
            name = chain_rule.PLANNED if lacking or not log else chain_rule.BACK_TESTED
            if name == chain_rule.PLANNED:
                why = lacking or "Slurm has no accounting"
                notes.append(f"waits are predicted by the plan of the queue (--predictor planned): {why}")
        elif name == chain_rule.BACK_TESTED and lacking:
            raise UnfitEnvironment(f"--predictor {name}: {lacking}", "--predictor planned needs no log")
    if name == chain_rule.BACK_TESTED:
        rule = chain_rule.back_tested(past, total, count, limit_s, Overlap(request.overlap), time.time())
        notes.append(
            f"a replay of the log has chosen the predictor {rule.predictor} with a margin of "
            f"{rule.margin_s / 3600.0:.3g} h, and {counted(rule.ahead, 'successor')} ahead at most"
        )
    else:
        rule = chain_rule.ChainRule(str(name))
        if name == chain_rule.BOOSTED:
            rule.provisioner(past, total, limit_s, time.time())  # raises what is missing now, not in an allocation
    if request.margin is not None:
        rule = replace(rule, margin_s=duration_option_s("--margin", request.margin))
    return rule, log, notes
