"""Request for a chain of allocations, and what it means for a chain that exists already."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from ecoshare.api.request_values import request_class, silent
from ecoshare.api.slurm_submit import SubmitRequest, duration_option_s
from ecoshare.errors import UsageError, did_you_mean
from ecoshare.values.allocation_chain import AllocationChain, ChainOutcome, Overlap

if TYPE_CHECKING:
    from ecoshare.cluster.slurm_script import AllocationRequest

_MOST_ALLOCATIONS = 10_000
"""Largest number of allocations that a user may ask for. A date without hyphens is a larger one."""


@request_class
class ChainRequest(SubmitRequest):
    """Request for a chain of allocations. The fields are options of `ecoshare slurm chain`.

    Attributes:
        until: `done`, a number of allocations, a time such as `3d` or a date, after which none is submitted.
        overlap: Conduct of a successor that comes early: `idle` or `take-over`.
        predictor: Name of the predictor of waits, see `ecoshare.chains.chain_rule`; None for the best that the log
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
    from ecoshare.chains.chain_rule import PREDICTORS

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
