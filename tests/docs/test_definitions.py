"""One definition of the slowdown, word for word, wherever it is defined."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest

from ecoshare import errors
from ecoshare.base.job_spec import JobSpec
from ecoshare.jobs.schema import SLOWDOWN, JobConfig, json_schema
from ecoshare.record.results.run_summary import RunSummary
from ecoshare.reporting.html import html
from ecoshare.simulation.traces.job_trace import TraceJob
from scripts.doc_tables import PAGES, with_tables
from tests.reporting.made_run import run
from tests.warm import ROOT

DEFINED = ("README.md", "docs/reports.md", "docs/how-it-works.md")


def flat(path: str) -> str:
    return " ".join((ROOT / path).read_text().split())


@pytest.mark.parametrize("path", DEFINED)
def test_the_slowdown_is_defined_in_the_same_words(path: str) -> None:
    """If it failed, a limit could be kept by one definition and broken by the other."""
    assert SLOWDOWN in flat(path)


@pytest.mark.slow
def test_the_schema_and_the_report_have_the_definition_too() -> None:
    assert SLOWDOWN in json.dumps(json_schema())
    assert SLOWDOWN in html(run())


@pytest.mark.parametrize("path", ["docs/quickstart.md", "docs/sharing.md", "docs/how-it-works.md"])
def test_pages_that_use_the_word_lead_to_the_definition(path: str) -> None:
    assert "reports.md#slowdown" in flat(path)


def test_the_limit_has_one_name_from_the_job_file_to_the_core() -> None:
    for kind in (JobSpec, TraceJob):
        names = {each.name for each in dataclasses.fields(kind)}
        assert {name for name in names if "slow" in name} == {"slowdown_limit"}
    assert {name for name in JobConfig.model_fields if "slow" in name} == {"slowdown_limit"}


@pytest.mark.parametrize("page", PAGES)
def test_tables_of_a_page_are_those_of_the_code(page: str) -> None:
    """If it failed, a page would lack an option: `python -m scripts.doc_tables` writes it."""
    text = (ROOT / page).read_text()
    assert text == with_tables(text)


@pytest.mark.parametrize(
    ("page", "kinds"),
    [
        ("docs/job-file.md", ("JobConfig", "JobOptions", "Sweep", "StopConfig", "Optuna")),
        ("docs/services.md", ("ServiceConfig", "RequestConfig")),
    ],
)
def test_a_page_has_each_key_of_the_job_file(page: str, kinds: tuple[str, ...]) -> None:
    text, parts = (ROOT / page).read_text(), json_schema()["$defs"]
    keys = {key for kind in kinds for key in parts[kind]["properties"]}
    assert {key for key in keys if not re.search(rf"\b{key}\b", text)} == set()


def parts(hint: Any) -> Iterator[type]:
    """Dataclasses of a type: itself, those of its arguments, and those of its fields."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        yield hint
    within = get_type_hints(hint).values() if isinstance(hint, type) else get_args(hint)
    for each in within if dataclasses.is_dataclass(hint) or get_args(hint) else ():
        yield from parts(each)


def test_the_api_page_has_each_part_of_the_summary() -> None:
    """If it failed, no page would explain the fields of an object in `summary.json`."""
    page = (ROOT / "docs/api/ecoshare.md").read_text()
    named = {f"::: {each.__module__}.{each.__name__}" for each in parts(RunSummary)}
    assert len(named) > 10 and named - set(page.splitlines()) == set()


def test_the_page_of_commands_has_each_exit_code() -> None:
    codes = {each.exit_code for each in vars(errors).values() if isinstance(each, type) and hasattr(each, "exit_code")}
    told = re.findall(r"^\| (\d+) \| ", (ROOT / "docs/commands.md").read_text(), re.MULTILINE)
    assert set(map(int, told)) == {0, *codes}
