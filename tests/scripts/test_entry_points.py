"""Each benchmark has a command in scripts/ that runs from any folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"


def commands() -> dict[str, str]:
    """Command of each benchmark by its module, as the benchmark names it in `--help`."""
    found = {}
    for path in (SCRIPTS / "bench").rglob("*.py"):
        call = re.search(r"^    run_benchmark\(\"(\w+)\"(?:.*script=\"([\w.]+)\")?", path.read_text(), re.MULTILINE)
        if call is not None:
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[module] = call[2] or f"bench_{call[1]}.py"
    return found


def test_each_benchmark_has_its_command_and_no_command_lacks_a_benchmark() -> None:
    """If it failed, the docs would name a command that does not exist or runs another benchmark."""
    found = commands()
    assert len(found) >= 18
    for module, command in found.items():
        path = SCRIPTS / command
        name = path.stem.removeprefix("bench_")
        assert (
            path.resolve().name == "benchmark.py" and module == f"scripts.bench.{name}"
            if path.is_symlink()
            else (f"from {module} import main\n" in path.read_text())
        )
    assert {path.name for path in SCRIPTS.glob("bench_*.py")} <= set(found.values())


def test_a_command_runs_from_another_folder(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "bench_start.py"), "--help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        timeout=60,
    )
    assert "--quick" in done.stdout and "--json" in done.stdout
