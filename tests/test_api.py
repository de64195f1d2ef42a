"""Names that `import ecoshare` offers to scripts stay there after any other import of the package."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import ecoshare
from tests.warm import ROOT


def test_no_module_has_the_name_of_a_function() -> None:
    """An imported submodule replaces the package's attribute of that name."""
    functions = {name for name, value in vars(ecoshare).items() if inspect.isfunction(value)}
    assert "report" in functions
    folder = ROOT / "ecoshare"
    modules = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    assert not functions & modules


@pytest.mark.slow
def test_a_study_may_report() -> None:
    """The integration imports the modules that draw reports."""
    program = "import ecoshare.integrations.optuna, ecoshare; ecoshare.report(a=1); ecoshare.iteration()"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=100)
