"""Section with the allocations of a chain, if the run went through one."""

from __future__ import annotations

from collections.abc import Iterator

from ecoshare.reporting.chain_text import account_lines, chain_rows
from ecoshare.reporting.job_table import ReportInput, ReportSection, fragment
from ecoshare.values.allocation_chain import ChainAccount

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
    chain = report.data.chain
    if chain is not None:
        account = ChainAccount.of(chain)
        body = fragment(_BODY, lines=account_lines(chain, account), rows=chain_rows(chain, account))
        yield ReportSection("Chain of allocations", body, "chain", is_table=True)
