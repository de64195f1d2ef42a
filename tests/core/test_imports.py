"""The layers of ARCHITECTURE.md, held against the imports of every file."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STANDARD = sys.stdlib_module_names

IMPURE = {"asyncio", "fcntl", "mmap", "multiprocessing", "os", "random", "select", "selectors", "signal", "socket"}
IMPURE |= {"subprocess", "tempfile", "threading", "time", "pathlib", "shutil", "io", "sys"}

BASE = {"ecoshare.base", "ecoshare.errors"}
WORDS_OF_THE_CORE = {
    f"ecoshare.base.{name}"
    for name in (
        "attempt",
        "class_profile",
        "device",
        "job_spec",
        "joules",
        "measurement",
        "plural",
        "segment",
        "service",
    )
}
ALLOWED = {
    "base": {"ecoshare.base"},
    "core": {*WORDS_OF_THE_CORE, "ecoshare.core", "sortedcontainers"},
    "jobs": {*BASE, "ecoshare.jobs", "optuna", "pydantic", "yaml"},
    "lane": {
        *BASE,
        "ecoshare.lane",
        "ecoshare.core.turns",
        "ecoshare.jobs.quantities",
        "ecoshare",
        "hdrh",
        "torch",
        "numpy",
    },
    "devices": {
        *BASE,
        "ecoshare.devices",
        "ecoshare.core.slices",
        "ecoshare.jobs.quantities",
        "amdsmi",
        "httpx",
        "platformdirs",
        "pydantic",
        "pynvml",
        "zeus",
    },
    "knowledge": {
        *BASE,
        "ecoshare.knowledge",
        "ecoshare.core",
        "ecoshare.devices",
        "tuner",
        "numpy",
        "platformdirs",
        "pydantic",
        "scipy",
        "threadpoolctl",
        "torch",
    },
    "record": {
        *BASE,
        "numpy",
        "ecoshare.record",
        "ecoshare.core",
        "ecoshare.jobs",
        "ecoshare.lane",
        "ecoshare.devices",
        "ecoshare.knowledge",
        "pydantic",
    },
    "metrics": {"ecoshare.metrics", "ecoshare.lane.serving", "prometheus_client"},
    "simulation": {
        *BASE,
        "ecoshare.simulation",
        "ecoshare.core",
        "ecoshare.knowledge",
        "ecoshare.jobs",
        "ecoshare.lane",
        "ecoshare.devices",
        "ecoshare.record",
        "ecoshare.policy_names",
        "numpy",
        "pydantic",
    },
    "testing": {
        *BASE,
        "ecoshare.testing",
        "ecoshare.core",
        "ecoshare.knowledge.advisers",
        "ecoshare.simulation",
        "hypothesis",
        "pytest",
    },
    "cluster": {
        *BASE,
        "ecoshare",
        "pydantic",
        "ray",
    },
    "top": {
        *BASE,
        "ecoshare.top",
        "ecoshare.core",
        "ecoshare.jobs",
        "ecoshare.lane",
        "ecoshare.queue",
        "ecoshare.record",
        "ecoshare.reporting",
        "numpy",
        "pydantic",
        "rich",
        "textual",
    },
    "contrib": {"ecoshare", "numpy", "pydantic", "rich", "scipy", "sklearn", "threadpoolctl", "torch", "typer"},
    "integrations": {"ecoshare", "lightning", "optuna", "ray", "torch", "transformers", "rich", "yaml"},
}
"""Modules that a layer may import beside the standard library. The drivers and the reports may import all."""


@cache
def imports(path: Path) -> frozenset[str]:
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names = {f"{module}.{alias.name}" for alias in node.names}
            found |= {name if (ROOT / (name.replace(".", "/") + ".py")).exists() else module for name in names}
    return frozenset(found)


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("layer", sorted(ALLOWED))
def test_a_layer_imports_only_what_its_place_allows(layer: str) -> None:
    assert files(f"ecoshare/{layer}")
    for path in files(f"ecoshare/{layer}"):
        for name in imports(path):
            if name.partition(".")[0] in STANDARD:
                continue
            whole = ALLOWED[layer] - ({"ecoshare"} if layer == "lane" else set())
            allowed = any(name == each or name.startswith(each + ".") for each in whole)
            assert allowed or name in ALLOWED[layer], f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize(("layer", "forbidden"), [("runtime", "reporting"), ("reporting", "runtime")])
def test_the_run_and_its_reports_know_each_other_by_the_record_alone(layer: str, forbidden: str) -> None:
    """A report of a run must not depend on how the run was driven, nor a run on how it is shown."""
    for path in files(f"ecoshare/{layer}"):
        used = {name for name in imports(path) if name.startswith(f"ecoshare.{forbidden}")}
        assert not used, f"{path.relative_to(ROOT)} imports {used}"


@pytest.mark.parametrize("layer", ["api", "cli", "integrations", "queue", "reporting", "simulation"])
def test_a_node_elsewhere_needs_the_run_alone(layer: str) -> None:
    for path in files("ecoshare/cluster"):
        used = {name for name in imports(path) if name.startswith(f"ecoshare.{layer}")}
        assert not used, f"{path.relative_to(ROOT)} imports {used}"


@pytest.mark.slow
def test_a_run_on_one_machine_needs_no_cluster() -> None:
    for path in files("ecoshare/runtime"):
        used = {name for name in imports(path) if name.startswith("ecoshare.cluster")}
        assert not used, f"{path.relative_to(ROOT)} imports {used}"


def test_the_core_touches_nothing() -> None:
    for path in files("ecoshare/core"):
        touched = {name.partition(".")[0] for name in imports(path)} & IMPURE
        assert not touched, f"{path.relative_to(ROOT)} imports {touched}"
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        assert not names & {"open", "print", "input"}, path


def test_the_tuner_stands_alone() -> None:
    for path in files("tuner"):
        assert not any(name.partition(".")[0] == "ecoshare" for name in imports(path)), path


@pytest.mark.slow
@pytest.mark.parametrize("edge", ["integrations", "contrib"])
def test_nothing_needs_what_is_at_the_edge(edge: str) -> None:
    """Other packages find it: by an import of the user, or by an entry point."""
    for path in files("ecoshare"):
        if ROOT / "ecoshare" / edge not in path.parents:
            used = {name for name in imports(path) if name.startswith(f"ecoshare.{edge}")}
            assert not used, f"{path.relative_to(ROOT)} imports {used}"


def test_parts_of_contrib_need_no_other() -> None:
    for part in (ROOT / "ecoshare" / "contrib").iterdir():
        for path in part.rglob("*.py"):
            used = {name for name in imports(path) if name.startswith("ecoshare.contrib.")}
            own = f"ecoshare.contrib.{part.name}."
            assert all(f"{name}.".startswith(own) for name in used), f"{path.relative_to(ROOT)} imports {used}"


def test_only_the_command_line_is_above_the_python_api() -> None:
    """If it failed, the API would print, or a lower layer would need it."""
    allowed = {
        "ecoshare/cli": {"ecoshare.api", "ecoshare.cli"},
        "ecoshare/api": {"ecoshare.api"},
        "ecoshare/__init__.py": {"ecoshare.api"},
        "ecoshare/__main__.py": {"ecoshare.cli"},
        "ecoshare/contrib/chains": {"ecoshare.api", "ecoshare.cli"},
    }
    for path in files("ecoshare"):
        used = {".".join(name.split(".")[:2]) for name in imports(path)} & {"ecoshare.api", "ecoshare.cli"}
        place = path.relative_to(ROOT)
        used -= allowed.get(str(place), set()) | allowed.get(str(place.parent), set())
        assert not used, f"{place} imports {used}"


@pytest.mark.parametrize("command", ["run", "profile", "tune", "simulate"])
def test_a_command_declares_builds_a_request_and_prints(command: str) -> None:
    """If it failed, the command would do what Python cannot ask for."""
    allowed = ("ecoshare.api", "ecoshare.cli", "ecoshare.base", "ecoshare.errors", "ecoshare.reporting")
    constants = {
        "ecoshare.knowledge.advisers.table_columns",
        "ecoshare.option_fields",
        "ecoshare.policy_names",  # parses `--option`
        "ecoshare.run_options",
        "ecoshare.runtime.signals",
        "ecoshare.simulation.costs",
        "ecoshare.base.device",
        "ecoshare.base.measurement",
    }
    path = ROOT / "ecoshare" / "cli" / f"{command}.py"
    whole = path.read_text().partition("if TYPE_CHECKING:")
    tree = ast.parse(whole[0] + re.sub(r"\A(\n    .*)+", "", whole[2]))
    names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    used = {name for name in names if name.startswith("ecoshare.") and not name.startswith(allowed)}
    assert used <= constants, used - constants


def test_what_jobs_load_brings_nothing_heavy_into_their_process() -> None:
    seen = subprocess.run(
        [
            sys.executable,
            "-c",
            "import ecoshare.lane.runner, ecoshare.lane.supervisor.server, sys; print(*sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    heavy = {"torch", "numpy", "pydantic", "yaml", "zeus", "botorch", "rich", "typer", "sortedcontainers", "tuner"}
    assert not heavy & set(seen)


@pytest.mark.slow
def test_the_command_line_starts_without_torch() -> None:
    seen = subprocess.run(
        [
            sys.executable,
            "-c",
            "import ecoshare.cli, ecoshare.runtime.run_lifecycle, sys; print('torch' in sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert seen == "False\n"


@pytest.mark.slow
def test_only_the_view_of_the_terminal_loads_textual() -> None:
    outside = [path for path in files("ecoshare") if not path.is_relative_to(ROOT / "ecoshare/top")]
    assert [path for path in outside if any(name.partition(".")[0] == "textual" for name in imports(path))] == []
    program = "import ecoshare.cli, ecoshare.cli.app, sys; print('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"False\n"


def test_only_the_advisers_know_the_tuner() -> None:
    """The tuner stands alone; a change of its types must stop at one package."""
    outside = [path for path in files("ecoshare") if not path.is_relative_to(ROOT / "ecoshare/knowledge/advisers")]
    assert [path for path in outside if any(name.partition(".")[0] == "tuner" for name in imports(path))] == []


ASKS_THE_MACHINE = {
    "runtime": {"calibration_load", "cleanup", "device_calibration", "device_session"},
    "queue": {"client", "job_store", "submission_plan"},
    "cluster": {"cluster_node", "links", "ray_nodes", "slurm_nodes"},
}
"""Modules that ask the machine for the time: they wait for real processes, threads, Slurm, Ray, or have no loop."""


@pytest.mark.parametrize("folder", ASKS_THE_MACHINE)
def test_only_what_waits_for_the_machine_asks_it_for_the_time(folder: str) -> None:
    """All else follows the clock of its run. If it did not, tests in virtual time would not show what it does."""
    asks = re.compile(r"(?<![\w.])time\.(monotonic|time|sleep|perf_counter|process_time)\b")
    found = {path.stem for path in files(f"ecoshare/{folder}") if asks.search(path.read_text())}
    assert found == ASKS_THE_MACHINE[folder]
