"""Section of the HTML report, and the run that it is written from.

Each module of `reporting/sections/` adds to the report. It has a number `PLACE`, and a function `sections` that yields
the sections of a report. The page shows them in the order of the places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.results.run_summary import RunSummary
from ecoshare.record.run_data import RunData
from ecoshare.reporting.job_table import NOT_KNOWN


@dataclass(frozen=True, slots=True)
class DrawnChart:
    """Chart as it stands in the page.

    Attributes:
        caption: Sentences below the title; the reason if the chart is not drawn.
        svg: SVG element; None if the chart is not drawn.
    """

    key: str
    title: str
    caption: str
    svg: Markup | None


@dataclass(frozen=True, slots=True)
class ReportInput:
    """Run that a report shows.

    Attributes:
        charts: All charts of the run, in order.
        jobs: Jobs that the tables show; of very many jobs only some.
    """

    data: RunData
    charts: list[DrawnChart]
    jobs: list[JobSummary]

    @property
    def summary(self) -> RunSummary:
        """Result of the run."""
        return self.data.summary


@dataclass(frozen=True, slots=True)
class ReportSection:
    """Section of a report.

    Attributes:
        body: Content below the title.
        anchor: Id of the section in the page; empty for none.
        is_table: Whether the section is a table, which may be longer than a printed page.
    """

    title: str
    body: Markup
    anchor: str = ""
    is_table: bool = False

    def html(self) -> Markup:
        """The section as an HTML element."""
        kind = Markup(' class="table"') if self.is_table else ""
        anchor = Markup(' id="{}"').format(self.anchor) if self.anchor else ""
        return Markup("<section{}{}>\n<h2>{}</h2>\n{}</section>\n").format(kind, anchor, self.title, self.body)


class SectionModule(Protocol):
    """Module that adds sections to a report."""

    PLACE: int

    def sections(self, report: ReportInput) -> Iterator[ReportSection]:
        """Yield the sections; none if the run has nothing for them."""
        ...


def fragment(template: str, **values: Any) -> Markup:
    """HTML from a Jinja template: values are escaped, and the filter `with_code` shows text between backticks as code.

    `not_known` is the text for unknown values.
    """
    return Markup(_environment().from_string(template).render(values, not_known=NOT_KNOWN))


def chart_body(chart: DrawnChart) -> Markup:
    """Body of a section with one drawn chart."""
    template = "<figure><figcaption>{{ chart.caption }}</figcaption>\n{{ chart.svg }}\n</figure>\n"
    return fragment(template, chart=chart)


@cache
def _environment() -> Environment:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["with_code"] = _with_code
    return environment


def _with_code(words: str) -> Markup:
    """HTML of a sentence, with text between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(words))))
