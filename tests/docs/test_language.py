"""Plain English in docstrings, comments and printed texts: sentences open with their subject; things are no persons.

The rule is in CONTRIBUTING.md, "Language".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "ecoshare/api",
    "ecoshare/cli",
    "ecoshare/base",
    "ecoshare/contrib",
    "ecoshare/core",
    "ecoshare/devices",
    "ecoshare/integrations",
    "ecoshare/jobs",
    "ecoshare/lane",
    "ecoshare/knowledge",
    "ecoshare/record",
    "ecoshare/reporting",
    "ecoshare/runtime",
    "ecoshare/simulation",
    "ecoshare/top",
    "scripts",
    "tests",
    "tuner",
)
"""Folders that hold the rule."""

NOT_PRINTED = ("scripts", "tests")
"""Folders with strings that users do not see."""

OPENINGS = {"As", "By", "Its", "Of", "That", "What", "Where", "Who", "Whoever", "Whose"}
"""A sentence or an entry that opens so must be read twice: it opens with the thing that it is about instead."""

PERSONS = re.compile(r"\b(nobody|somebody|anybody|everybody|whoever|whose|who|whom)\b", re.I)
"""Words for persons: jobs, processes and lanes are things."""

_STRING_OR_COMMENT = re.compile(
    r'''"""(?:\\.|[^\\])*?"""|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|(?P<comment>\#[^\n]*)''',
    re.S,
)
"""Strings, so that a `#` in one begins no comment, and comments. `tokenize` finds the same, 20 times as slowly."""

_ENTRY = re.compile(r"^(?:`?[*\w.]+`?(?: \([^)]*\))?: )")
_SENTENCE = re.compile(r"(?<=[.:?!] )(?=[A-Z])")


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring, those of constants and fields included."""
    bodies = [tree.body]
    while bodies:
        for each in (body := bodies.pop()):
            value = each.value if isinstance(each, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield each.lineno, value.value
        # Statements alone, as a walk of every expression would take most of the time.
        bodies += [below for each in body for below in _bodies(each)]


def _bodies(statement: ast.AST) -> Iterator[list[ast.stmt]]:
    """Lists of statements below a statement, at any branch of it."""
    for name in ("body", "orelse", "finalbody"):
        if below := getattr(statement, name, None):
            yield below
    for branch in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield branch.body


def strings(tree: ast.Module) -> Iterator[tuple[int, str, bool]]:
    """Line and text of each string, and whether it describes an option or a key: `help=` or `description=`."""
    nodes = list(ast.walk(tree))
    described = {
        id(part)
        for node in nodes
        if isinstance(node, ast.keyword) and node.arg in ("help", "description")
        for part in ast.walk(node.value)
    }
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value, id(node) in described


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of each comment; neighbouring lines are one comment."""
    found: list[tuple[int, int, str]] = []
    line, at = 1, 0
    for token in _STRING_OR_COMMENT.finditer(text):
        line += text.count("\n", at, token.start())
        at = token.start()
        comment = token["comment"]
        if comment is not None and not re.match(r"#\s*(noqa|type:|!)", comment):
            words = comment.lstrip("# ")
            alone = not text[text.rfind("\n", 0, at) + 1 : at].strip()
            if alone and found and found[-1][1] == line - 1:
                found[-1] = found[-1][0], line, f"{found[-1][2]} {words}"
            else:
                found.append((line, line if alone else -1, words))
    yield from ((line, words) for line, _, words in found)


def sentences(text: str) -> Iterator[str]:
    """Sentences and entries (`name: text`) of a docstring, without drawings and code, which are indented after `::`."""
    text = re.sub(r"::\n\n((?: {4,}.*\n|\n)+)", "\n\n", f"{text}\n")
    for block in re.split(r"\n\s*\n|\n(?=\s*`?[*\w.]+`?(?: \([^)]*\))?: )", text):
        words = " ".join(block.split())
        yield from _SENTENCE.split(_ENTRY.sub("", words))


def faults(path: Path, root: Path = ROOT, is_printed: bool = True) -> list[str]:
    """Sentences of a file that break the rule, each with its line.

    Args:
        is_printed: Whether the strings of the file are printed for users, and so are held, too.
    """
    text = path.read_text()
    tree = ast.parse(text)
    found = []
    told = {*docstrings(tree), *comments(text)}
    prose = sorted(told)
    for line, words, describes in strings(tree) if is_printed else ():
        if describes:
            prose.append((line, words))
        elif (line, words) not in told and (person := PERSONS.search(words)):
            found.append(f"{path.relative_to(root)}:{line}: prints {person[0]!r}: {words[:70]}")
    for line, words in prose:
        for sentence in sentences(words):
            opening = sentence.partition(" ")[0].strip("`(,")
            if opening in OPENINGS or (opening.capitalize() in OPENINGS and sentence[:1].islower()):
                found.append(f"{path.relative_to(root)}:{line}: opens with {opening!r}: {sentence[:70]}")
            elif person := PERSONS.search(sentence):
                found.append(f"{path.relative_to(root)}:{line}: has {person[0]!r}: {sentence[:70]}")
    return found


@pytest.mark.parametrize(
    "folder", [pytest.param(each, marks=pytest.mark.slow if each in NOT_PRINTED else ()) for each in FOLDERS]
)
def test_every_sentence_opens_with_what_it_is_about(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    found = [fault for path in paths for fault in faults(path, is_printed=folder not in NOT_PRINTED)]
    assert not found, "\n".join(found)


def test_the_rule_finds_what_it_forbids(tmp_path: Path) -> None:
    text = '"""Of a job, its length.\n\nNobody knows it. Length in seconds.\n"""\n# who waits\nx = 1  # as before\n'
    text += 'option(help="Of the seed.")\nraise Error("somebody has it")\n'
    (path := tmp_path / "sample.py").write_text(text)
    found = [fault.partition(": ")[2] for fault in faults(path, tmp_path)]
    assert found == [
        "prints 'somebody': somebody has it",
        "opens with 'Of': Of a job, its length.",
        "has 'Nobody': Nobody knows it. ",
        "opens with 'who': who waits",
        "opens with 'as': as before",
        "opens with 'Of': Of the seed.",
    ]
