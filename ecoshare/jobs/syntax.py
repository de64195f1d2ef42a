"""Translate YAML's error messages for users without knowledge of its grammar."""

from __future__ import annotations

from typing import Final, NamedTuple

import yaml

from ecoshare.errors import Mistake
from ecoshare.jobs.source import Source

MAX_DEPTH: Final = 16
"""Most levels of a document; a job file needs four."""


class _Complaint(NamedTuple):
    """One error of the parser, recognised by parts of its text; libyaml and PyYAML use different texts.

    `at_start` is true if the message should point to the beginning of the construct: the parser notices an
    unclosed quote only at the end of the file. `{line}` stands for the line where the construct begins.
    """

    context: str
    problem: str
    what: str
    at_start: bool = False


_ESCAPE: Final = "an unknown escape after '\\': double the backslash, or use single quotes"
_INDICATOR: Final = "{} in YAML; put a value that begins so in quotes"
_DIRECTIVE: Final = "a line that begins with '%' is a YAML directive; remove it"
_OPEN_QUOTE: Final = "this quote is never closed"

# The first match wins. No message quotes the file: a value of `env:` may stand at the place of the mistake.
_COMPLAINTS: Final = (
    # libyaml has a limit of its own since PyYAML 6.0.4, and reads ahead so far that it meets it first.
    _Complaint("", "nesting depth", f"nested deeper than {MAX_DEPTH} levels"),
    _Complaint("", "tab character", "a tab; YAML indents with spaces only"),
    _Complaint("", "cannot start any token", "a value cannot begin with '@', '`' or '%'; put it in quotes"),
    _Complaint(
        "",
        "apping values are not allowed",
        "no ':' can stand here: check the indentation, and put a value that holds ': ' in quotes",
    ),
    _Complaint("", "equence entries are not allowed", "a list item '- ' must begin a line of its own"),
    _Complaint("quoted", "end of stream", _OPEN_QUOTE, at_start=True),
    _Complaint("quoted", "unexpected document", _OPEN_QUOTE, at_start=True),
    _Complaint("quoted", "escape", _ESCAPE),
    _Complaint("quoted", "expected", _ESCAPE),
    _Complaint("simple key", "':'", "expected ':' and a value after this key", at_start=True),
    _Complaint("flow sequence", "',' or ']'", "expected ',' or ']' in the list that begins on line {line}"),
    _Complaint("flow mapping", "',' or '}'", "expected ',' or '}' in the mapping that begins on line {line}"),
    _Complaint(
        "block mapping",
        "expected",
        "expected a key of the mapping that begins on line {line}: check the indentation and the quotes",
    ),
    _Complaint(
        "block collection",
        "expected",
        "expected '- ' as in the list that begins on line {line}: check the indentation",
    ),
    _Complaint("block scalar", "", _INDICATOR.format("'|' or '>' begins text of several lines")),
    _Complaint("alias", "", _INDICATOR.format("'*' begins an alias"), at_start=True),
    _Complaint("anchor", "", _INDICATOR.format("'&' begins an anchor"), at_start=True),
    _Complaint("tag", "", _INDICATOR.format("'!' begins a tag"), at_start=True),
    _Complaint("", "undefined tag", _INDICATOR.format("'!' begins a tag"), at_start=True),
    _Complaint("directive", "", _DIRECTIVE, at_start=True),
    _Complaint("", "%", _DIRECTIVE),
    _Complaint("", "YAML", _DIRECTIVE),
    _Complaint("", "document start", "this does not belong to what stands before it; check the indentation"),
    _Complaint("", "node content", "expected a value here"),
)


def syntax_mistake(error: yaml.YAMLError, source: Source) -> Mistake:
    """The mistake that made the parser stop."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return source.mistake(0, "", "this is not YAML")
    index = error.problem_mark.index
    start = error.context_mark.index if error.context_mark is not None else index
    context, problem = str(error.context or ""), str(error.problem or "")
    if source.text[index : index + 1] == "\t":
        context, problem = "", "tab character"
    elif "flow" in context and index >= len(source.text):
        return source.mistake(start, "", "this bracket is never closed")
    for complaint in _COMPLAINTS:
        if complaint.context in context and complaint.problem in problem:
            what = complaint.what.replace("{line}", str(source.line(start)))
            return source.mistake(start if complaint.at_start else index, "", what)
    return source.mistake(index, "", "this is not YAML; check the indentation and the quotes")
