"""Prints a chain of allocations: a line for each, and what the passages from one to the next have cost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.text import Text

from ecoshare.base.plural import counted
from ecoshare.contrib.chains.allocation_chain import AllocationChain, ChainAccount, ChainAllocation
from ecoshare.contrib.chains.chain_record import read_chain
from ecoshare.jobs.quantities import format_duration, format_energy
from ecoshare.reporting.figures import UNKNOWN, say
from ecoshare.reporting.report_sections import ReportInput, ReportSection, fragment
from ecoshare.reporting.tables.text_table import TableColumn, print_columns


class SubmissionDecision(Protocol):
    """Decision whether to submit the next allocation."""

    @property
    def submit(self) -> bool:
        """Whether it is to be submitted now."""
        ...

    @property
    def look_again_s(self) -> float:
        """Time (s) until the next look."""
        ...

    @property
    def remaining_s(self) -> float:
        """Time (s) that the allocations so far still cover."""
        ...


def print_chain(chain: AllocationChain, account: ChainAccount, console: Console) -> None:
    """Print the table of a chain, and its account."""
    rows = chain_rows(chain, account)
    columns = [
        TableColumn(Text(name), [Text(row[name]) for row in rows], right=name not in ("allocation", "end"))
        for name in (rows[0] if rows else {})
    ]
    print_columns(columns, console)
    for line in account_lines(chain, account):
        say(console, line)


def chain_rows(chain: AllocationChain, account: ChainAccount) -> list[dict[str, str]]:
    """Cells of each allocation by column."""
    passages = {each.number: each for each in account.passages}
    rows = []
    for each in chain.allocations:
        own = passages.get(each.number)
        rows.append(
            {
                "allocation": str(each.number),
                "Slurm job": UNKNOWN if each.job is None else str(each.job),
                "waited": _time(each.queued_s),
                "predicted": _time(each.predicted_wait_s),
                "interruption": _time(own.interruption_s if own is not None else None),
                "overlap": _time(own.overlap_s if own is not None else None),
                "worked": _time(_worked_s(each)),
                "end": each.end.value if each.end is not None else "",
            }
        )
    return rows


def account_lines(chain: AllocationChain, account: ChainAccount) -> list[str]:
    """Sentences on what the passages have cost."""
    count = len(account.passages)
    first = f"{counted(count, 'passage')}: {format_duration(account.interruption_s)} without an allocation, "
    first += f"{format_duration(account.between_s)} between the runs, {format_duration(account.overlap_s)} of overlap"
    joules = "not known" if account.overlap_j is None else format_energy(account.overlap_j)
    lines = [f"{first}."]
    if account.overlap_s > 0.0:
        lines.append(
            f"Energy of the overlap: {joules}{f', {account.overlap_source}' if account.overlap_source else ''}."
        )
    ahead = f", {counted(chain.ahead, 'successor')} ahead" if chain.ahead > 1 else ""
    margin = f", with a margin of {format_duration(chain.margin_s)}" if chain.margin_s else ""
    how = f"the predictor `{chain.predictor}`{margin}{ahead}"
    lines.append(f"Successors were submitted by {how}; overlap: {chain.overlap.value}.")
    return lines


def decision_lines(
    chain: AllocationChain, decision: SubmissionDecision | None, is_new: bool, predicted_wait_s: float
) -> list[str]:
    """Sentences on what would be submitted now."""
    wait = format_duration(predicted_wait_s)
    lines = [f"predictor {chain.predictor}: an allocation that is submitted now is predicted to wait {wait}"]
    before_s = predicted_wait_s + chain.margin_s + chain.stop_s
    if decision is None:
        lines.append("no allocation would be submitted now")
    elif decision.submit:
        lines.append("this allocation would be submitted now")
    else:
        left, look = format_duration(decision.remaining_s), format_duration(decision.look_again_s)
        lines.append(f"no allocation would be submitted now: {left} are covered; next look in {look}")
    if is_new:
        lines.append(
            f"its successor would be submitted {format_duration(min(before_s, chain.limit_s))} before its limit"
        )
    return lines


def _worked_s(each: ChainAllocation) -> float | None:
    if each.works_from_s is None or each.works_to_s is None:
        return None
    return max(0.0, each.works_to_s - each.works_from_s)


def _time(value_s: float | None) -> str:
    return UNKNOWN if value_s is None else format_duration(value_s)


PLACE = 75

_BODY = """\
{% for line in lines %}
<p>{{ line | with_code }}</p>
{% endfor %}
{% if rows %}
<table class="fit">
<thead><tr>{% for column in rows[0] %}<th scope="col">{{ column }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in rows %}
<tr>{% for value in row.values() %}{% if loop.first %}<th scope="row">{{ value }}</th>{% else %}<td>{{ value }}</td>{% endif %}{% endfor %}</tr>
{% endfor %}
</tbody>
</table>
{% endif %}
"""  # noqa: E501


def sections(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the allocations and what their passages have cost; nothing for a run that went through no chain."""
    chain = read_chain(Path(report.summary.run))
    if chain is not None:
        account = ChainAccount.of(chain)
        body = fragment(_BODY, lines=account_lines(chain, account), rows=chain_rows(chain, account))
        yield ReportSection("Chain of allocations", body, "chain", is_table=True)
