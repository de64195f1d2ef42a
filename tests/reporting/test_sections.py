"""A section of the report is one file."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from ecoshare.reporting import sections
from ecoshare.reporting.html import html
from ecoshare.reporting.job_table import ReportSection, fragment
from tests.reporting.made_run import run

NEW = """
from ecoshare.reporting.job_table import ReportSection, fragment

PLACE = 55


def sections(report):
    yield ReportSection("Owner", fragment("<p>{{ name }}</p>\\n", name="<ann>"), "owner")
"""


@pytest.mark.slow
def test_a_new_file_is_a_section_of_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "owner_section.py").write_text(NEW)
    monkeypatch.setattr(sections, "__path__", [*sections.__path__, str(tmp_path)])
    page = html(run(jobs=2))
    monkeypatch.delitem(sys.modules, "ecoshare.reporting.sections.owner_section")
    assert '<section id="owner">\n<h2>Owner</h2>\n<p>&lt;ann&gt;</p>\n</section>' in page
    assert page.index('id="decisions"') < page.index('id="owner"') < page.index('id="notes"')


def test_no_two_modules_have_one_place() -> None:
    """Their order would be that of their file names."""
    modules = [import_module(f"{sections.__name__}.{each.name}") for each in iter_modules(sections.__path__)]
    places = [module.PLACE for module in modules]
    assert len(places) >= 10 and len(set(places)) == len(places)


def test_a_title_is_text() -> None:
    told = ReportSection("a<b", fragment("{{ words | with_code }}\n", words="`c<d` & e"), is_table=True).html()
    assert told == '<section class="table">\n<h2>a&lt;b</h2>\n<code>c&lt;d</code> &amp; e\n</section>\n'
