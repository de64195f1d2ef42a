"""Sections of the HTML report, one module each. A new module in this folder is in the report.

An installed package offers a module of its own under the entry point `ecoshare.report_sections`.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import cast

from ecoshare.reporting.job_table import ReportInput, ReportSection, SectionModule


def all_sections(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the sections of a report, in the order of the places of their modules."""
    modules = [cast(SectionModule, import_module(f"{__name__}.{each.name}")) for each in iter_modules(__path__)]
    modules += [cast(SectionModule, each.load()) for each in entry_points(group="ecoshare.report_sections")]
    for module in sorted(modules, key=lambda each: each.PLACE):
        yield from module.sections(report)
