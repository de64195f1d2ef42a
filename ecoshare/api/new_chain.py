"""A new chain of allocations: its partition, its limit and its rule, checked before anything is submitted."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshare.api.chain_request import ChainRequest, asked_options, bounds, check_words
from ecoshare.api.slurm_submit import duration_option_s
from ecoshare.common.plural import counted
from ecoshare.errors import EcoshareError, UnfitEnvironment, UsageError
from ecoshare.jobs.quantities import format_duration
from ecoshare.values.allocation_chain import AllocationChain, Overlap

if TYPE_CHECKING:
    from ecoshare.chains.batch_job import BatchJob
    from ecoshare.chains.chain_rule import ChainRule
    from ecoshare.cluster.slurm_queue import Partition
    from ecoshare.cluster.slurm_script import AllocationRequest


def new_chain(request: ChainRequest, allocation: AllocationRequest, path: Path) -> tuple[AllocationChain, str]:
    """A chain without allocations, and the log of the cluster, empty if there is none."""
    from ecoshare.cluster import slurm_queue
    from ecoshare.cluster.slurm_script import heading, resume_options, run_options
    from ecoshare.cluster.slurm_script import notes as allocation_notes
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
    from ecoshare.chains import chain_rule
    from ecoshare.cluster import slurm_queue
    from ecoshare.cluster.chain_folder import ChainFolder

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
