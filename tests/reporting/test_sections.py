"""Sections of the report, and one that a package offers."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from ecoshare.reporting import report_sections
from ecoshare.reporting.html import html
from ecoshare.reporting.report_sections import ReportInput, ReportSection, fragment
from tests.reporting.made_run import run


@pytest.mark.slow
def test_a_package_adds_a_section(monkeypatch: pytest.MonkeyPatch) -> None:
    def sections(_report: ReportInput) -> Iterator[ReportSection]:
        yield ReportSection("Owner", fragment("<p>{{ name }}</p>\n", name="<ann>"), "owner")

    offered = SimpleNamespace(load=lambda: SimpleNamespace(PLACE=55, sections=sections))
    monkeypatch.setattr(report_sections, "entry_points", lambda **_group: [offered])
    page = html(run(jobs=2))
    assert '<section id="owner">\n<h2>Owner</h2>\n<p>&lt;ann&gt;</p>\n</section>' in page
    assert page.index('id="decisions"') < page.index('id="owner"') < page.index('id="notes"')


def test_a_title_is_text() -> None:
    told = ReportSection("a<b", fragment("{{ words | with_code }}\n", words="`c<d` & e"), is_table=True).html()
    assert told == '<section class="table">\n<h2>a&lt;b</h2>\n<code>c&lt;d</code> &amp; e\n</section>\n'
