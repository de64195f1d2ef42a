"""Check a document against the schema: return its jobs, or their mistakes."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from ecoshare.errors import Mistake
from ecoshare.jobs.document import (
    MAX_MISTAKES,
    Document,
    Mapping,
    Node,
    Scalar,
    Sequence,
    path_text,
    plain_values,
)
from ecoshare.jobs.quantities import quoted
from ecoshare.jobs.schema import JobConfig, JobFile, JobOptions
from ecoshare.jobs.service_config import RequestConfig, ServiceConfig
from ecoshare.jobs.sweep import Optuna, StopConfig, Sweep

Loc = tuple[int | str, ...]

_MODELS: Final[dict[int | str, type[BaseModel]]] = {
    "defaults": JobOptions,
    "sweep": Sweep,
    "optuna": Optuna,
    "stop": StopConfig,
    "service": ServiceConfig,
    "requests": RequestConfig,
}
"""Model of the value under each of these keys."""

_LONGEST_KEY: Final = max(len(name) for name in JobConfig.model_fields)


def mistakes_in(error: ValidationError, document: Document, below: Loc = ()) -> list[Mistake]:
    """The first `MAX_MISTAKES` mistakes that the schema found, each with its place.

    A wrong value is reported at the value, and an unknown key at the key. A missing key is reported at the start of
    the mapping that lacks it.

    Args:
        below: Path of the value that the schema checked; empty for the whole document.
    """
    return [
        _mistake(details["type"], (*below, *details["loc"]), details.get("ctx", {}), document)
        for details in error.errors(include_url=False, include_input=False)[:MAX_MISTAKES]
    ]


def _mistake(kind: str, loc: Loc, context: dict[str, Any], document: Document) -> Mistake:
    node, key = _find(document, loc)
    if kind == "missing":
        what = f"the key {quoted(loc[-1])} is missing"
        return document.source.mistake(node.start, path_text(loc[:-1]), what)
    if kind == "extra_forbidden" and key is not None:
        return document.source.mistake(key.start, path_text(loc), _unknown_key(loc))
    return document.source.mistake(node.start, path_text(loc), _wrong_value(kind, loc, context, node))


def _wrong_value(kind: str, loc: Loc, context: dict[str, Any], node: Node) -> str:
    # The readers of `fields` report most mistakes. Bounds and the shape of the document are left.
    if kind == "value_error":
        return str(context["error"])
    if kind == "too_short":
        return "at least one job is needed"
    got = quoted(plain_values(node))
    if kind == "greater_than_equal":
        return f"expected at least {context['ge']:,.15g}, got {got}"
    if kind == "less_than_equal":
        return f"expected at most {context['le']:,.15g}, got {got}"
    if kind == "greater_than":
        return f"expected more than {context['gt']:,.15g}, got {got}"
    if kind == "tuple_type":
        return f"expected a list of jobs, each beginning with '- name:', got {got}"
    if loc == ():
        return f"expected the keys 'version' and 'jobs', got {got}"
    return f"expected a mapping of keys and values, got {got}"


def _unknown_key(loc: Loc) -> str:
    *parent, key = loc
    known = _keys(_MODELS.get(parent[-1], JobConfig) if parent else JobFile)
    if parent == ["defaults"] and key in _keys(JobConfig):
        return f"each job has its own {quoted(key)}; it cannot be a default"
    # The comparison takes quadratic time in the length of the key.
    guess = str(key)[: 2 * _LONGEST_KEY].lower()
    close = get_close_matches(guess, known, n=1)
    hint = f"did you mean {quoted(close[0])}?" if close else f"known are {', '.join(known)}"
    return f"unknown key {quoted(key)}; {hint}"


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _find(document: Document, loc: Loc) -> tuple[Node, Scalar | None]:
    """The node at this path, or the last node on the way to it, and the key of that node if it has one."""
    assert document.root is not None
    node, key = document.root, None
    for step in loc:
        if isinstance(node, Mapping) and isinstance(step, str) and step in node.entries:
            key, node = node.entries[step]
        elif isinstance(node, Sequence) and isinstance(step, int) and step < len(node.items):
            key, node = None, node.items[step]
        else:
            break
    return node, key


_STAND_IN: Final = JobConfig(name="stand-in", script=Path("stand-in"))


def validate(document: Document) -> tuple[JobFile | None, list[JobConfig], list[Mistake]]:
    """The file without its jobs, the jobs, and the mistakes; ignore the first two if there are mistakes.

    Validation stops after `MAX_MISTAKES`.
    """
    assert document.root is not None
    values = plain_values(document.root)
    file: JobFile | None = None
    jobs, mistakes = list[JobConfig](), list[Mistake]()
    job_values: list[object] = []
    if isinstance(values, dict) and isinstance(values.get("jobs"), list):
        job_values = values["jobs"]
        values["jobs"] = [_STAND_IN] * len(job_values)
    try:
        file = JobFile.model_validate(values)
    except ValidationError as error:
        mistakes += mistakes_in(error, document)
    # One job at a time, although `JobFile` could validate all at once. A mistake takes over a kilobyte until it is put
    # in words, and a short file with aliases can make a million of them.
    for index, value in enumerate(job_values):
        try:
            jobs.append(JobConfig.model_validate(value))
        except ValidationError as error:
            mistakes += mistakes_in(error, document, ("jobs", index))
            if len(mistakes) >= MAX_MISTAKES:
                break
    return file, jobs, mistakes
