"""Counts agree with their nouns in all messages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from ecoshare.base.plural import counted
from tests.warm import ROOT

NOUNS = (
    "cells|classes|devices|epochs|GPUs|iterations|jobs|lanes|marks|nodes|packings|places|schedules|settings|steps|trials"
    "|windows"
)
_COUNTED = re.compile(rf"}} (?:more |new |other |empty )?(?:{NOUNS})\b")
NEVER_ONE = {
    "knowledge/advisers/measured_table.py: {len(rows)} settings",  # more than a search takes
    "core/placement/memory_fit.py: {nodes} nodes",  # beside `one node`
    "core/policies/fluid.py: {gpus} GPUs",  # refused since it is less
    "core/policies/fluid.py: {len(largest)} trials",  # a mistake of the caller
    "jobs/sweep.py: {self.count} trials",  # far too many
    "lane/memory/observer.py: {_MOST_NODES} nodes",
    "reporting/exports.py: {marks} marks",  # too many for a trace
    "reporting/tables/run_table.py: {parts} jobs",  # said of four or more, on two processors or more
    "runtime/planning/plan.py: {len(jobs)} jobs",  # asked of several only
    "simulation/traces/generate.py: {gpus} GPUs",  # refused since it is less
    "simulation/traces/generate.py: {jobs} jobs",  # refused since it is less, or far too many
}
"""File and words."""


def test_one_is_not_plural() -> None:
    assert [counted(number, "job") for number in (0, 1, 2)] == ["0 jobs", "1 job", "2 jobs"]
    assert counted(1, "new class", "new classes") == "1 new class"
    assert counted(3, "new class", "new classes") == "3 new classes"


def test_no_words_for_users_put_a_plural_after_a_bare_count() -> None:
    assert set(_plurals()) == NEVER_ONE, "write counted(number, noun)"


def _plurals() -> Iterator[str]:
    """Counts before a plural in f-strings, except calls other than `len`, which may return words already."""
    package = ROOT / "ecoshare"
    for path in sorted(package.rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if _COUNTED.search(text) else ():
            if isinstance(node, ast.JoinedStr):
                for value, after in pairwise(node.values):
                    if words := _plural(value, after):
                        yield f"{path.relative_to(package)}: {words}"


def _plural(value: ast.expr, after: ast.expr) -> str:
    if not (isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant)):
        return ""
    noun = _COUNTED.match(f"}}{after.value!s}")
    call = ast.unparse(value.value)
    is_count = not isinstance(value.value, ast.Call) or call.startswith("len(")
    return f"{{{call}{noun.group()}" if noun is not None and is_count else ""
