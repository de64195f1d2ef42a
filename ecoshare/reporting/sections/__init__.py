"""Sections of the HTML report, one module each. A new module in this folder is in the report."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import cast

from ecoshare.reporting.job_table import ReportInput, ReportSection, SectionModule


def all_sections(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the sections of a report, in the order of the places of their modules."""
    modules = [cast(SectionModule, import_module(f"{__name__}.{each.name}")) for each in iter_modules(__path__)]
    for module in sorted(modules, key=lambda each: each.PLACE):
        yield from module.sections(report)
