"""The names of a run's documents."""

from __future__ import annotations

import ast
from pathlib import Path

from ecoshare.record.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
DOCUMENTS = {
    getattr(RunFolder(Path("run")), name).name for name, value in vars(RunFolder).items() if isinstance(value, property)
} - {"jobs", "profiles", "jobs.yaml"}
"""Names that mean nothing else: a job file is called jobs.yaml, too."""

MAY_NAME = {
    "record/run_folder.py": "it knows them",
    "cli/completion.py": "a completion imports as little as it can",
    "runtime/on_end.py": "a job has a log of that name, too",
}


def test_no_other_module_names_a_document_of_a_run() -> None:
    """A document with a second name in another module is missed when it is renamed, and by `check_own`."""
    assert {"events.jsonl", "samples.jsonl", "plan.json", "environment.json", "on_end.log"} <= DOCUMENTS
    for path in (ROOT / "ecoshare").rglob("*.py"):
        if str(path.relative_to(ROOT / "ecoshare")) in MAY_NAME:
            continue
        text = path.read_text()
        if not any(each in text for each in DOCUMENTS):
            continue
        found = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
        named = {each for each in found if isinstance(each, str)} & DOCUMENTS
        assert not named, f"{path.relative_to(ROOT)} names {named}"
