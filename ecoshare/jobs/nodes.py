"""Nodes of a YAML document: text, lists and mappings, each with its place in the source."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.-]{1,100}")


@dataclass(slots=True, eq=False)
class Scalar:
    """One piece of text.

    Attributes:
        text: The text as written, without quotes and with escapes replaced.
        plain: True if the source has the text without quotes.
        start: Index of the first character in the source, the anchor included.
        end: Index after the last character.
    """

    text: str
    plain: bool
    start: int
    end: int


@dataclass(slots=True, eq=False)
class Sequence:
    """A list of nodes; `start` is the index of the first character in the source."""

    start: int
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Mapping:
    """Keys and values, including those that a merge key adds.

    Attributes:
        start: Index of the first character in the source.
        entries: Key node and value node, by the text of the key.
        merged: Value of the merge key `<<`, including the keys that `entries` overrides; None without one.
    """

    start: int
    entries: dict[str, tuple[Scalar, Node]] = field(default_factory=dict)
    merged: Node | None = None


Node = Scalar | Sequence | Mapping


def path_text(steps: Iterable[str | int]) -> str:
    """Path to a value as messages show it, such as `jobs[0].timeout`.

    The path ends before a key that is not a plain name, since such a key may be a misplaced value.
    """
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            path += f".{step}" if path else step
        else:
            break
    return path
