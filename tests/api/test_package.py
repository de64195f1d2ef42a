"""The names of `import ecoshare` stay there, and cost the process of a job nothing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

import ecoshare
from tests.warm import ROOT

PUBLIC = [name for names in ecoshare._API.values() for name in names]


def program(text: str) -> str:
    line = [sys.executable, "-c", text]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True, timeout=100).stdout


def test_no_module_has_a_public_name() -> None:
    """An imported submodule replaces the package's attribute of that name: `ecoshare.run` would be a module."""
    names = {name for name, value in vars(ecoshare).items() if callable(value)} | set(PUBLIC)
    assert {"report", "iteration", "run", "simulate", "profile", "tune", "serve"} <= names
    folder = ROOT / "ecoshare"
    modules = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    assert not names & modules


def test_a_name_stays_what_it_is_after_its_first_use() -> None:
    for name in PUBLIC:
        assert getattr(ecoshare, name) is getattr(ecoshare, name)
        assert callable(getattr(ecoshare, name)), name
        assert name in dir(ecoshare)
    with pytest.raises(AttributeError, match="has no attribute 'runn'"):
        _ = ecoshare.runn  # type: ignore[attr-defined]


def test_type_checkers_see_the_names_that_are_there() -> None:
    """If it failed, a name would exist for the interpreter and not for mypy, or the other way round."""
    tree = ast.parse((ROOT / "ecoshare/__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imported: dict[str | None, str | None] = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        imported |= {alias.asname: node.module for alias in node.names if alias.asname}
    assert imported == {name: f"ecoshare.{module}" for module, names in ecoshare._API.items() for name in names}


def test_a_job_that_imports_ecoshare_loads_this_one_module() -> None:
    """Jobs call `iteration` and `report`: the controller, or even `typing`, would be loaded in each of them."""
    seen = program(
        "import sys, collections.abc; before = set(sys.modules)\n"
        "import ecoshare; ecoshare.iteration(); ecoshare.report(loss=1); dir(ecoshare)\n"
        "print(*set(sys.modules) - before)"
    ).split()
    assert seen == ["ecoshare"]


def test_a_request_loads_neither_torch_nor_the_controller() -> None:
    seen = program("import sys, ecoshare; ecoshare.RunRequest(jobs='a.yaml'); print(*sys.modules)").split()
    assert not {"torch", "numpy", "pydantic", "rich", "typer"} & set(seen)
    assert not [name for name in seen if name.startswith("ecoshare.runtime")]


RESULTS = (
    "ecoshare.record.results.run_summary.RunSummary",
    "ecoshare.record.results.job_summary.JobSummary",
    "ecoshare.queue.queue_documents.Acknowledged",
    "ecoshare.queue.queue_documents.JobsChanged",
    "ecoshare.queue.queue_documents.JobStatus",
    "ecoshare.queue.queue_documents.QueueStatus",
    "ecoshare.record.run_view.ServiceStatus",
    "ecoshare.record.run_view.DeviceStatus",
    "ecoshare.record.run_view.LaneStatus",
)
"""Types of values in a `RunResult` and of a `Queue`, which the page has, too."""


def test_every_public_name_has_a_place_in_the_api_page() -> None:
    page = (ROOT / "docs/api/ecoshare.md").read_text()
    documented = re.findall(r"^::: (\S+)$", page, re.MULTILINE)
    modules = [f"ecoshare.{module}.{name}" for module, names in ecoshare._API.items() for name in names]
    parts = {each for each in documented if each.startswith("ecoshare.record.")}
    assert set(documented) - parts == {*modules, *RESULTS, "ecoshare.iteration", "ecoshare.report"} - parts
    assert parts >= {each for each in RESULTS if each.startswith("ecoshare.record.")}
    assert len(documented) == len(set(documented))


@pytest.mark.nightly
def test_a_study_may_report() -> None:
    """The integration imports what draws reports."""
    program("import ecoshare.integrations.optuna, ecoshare; ecoshare.report(a=1); ecoshare.iteration()")
