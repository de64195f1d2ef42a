"""What a YAML document consists of: text, lists and mappings that know their places."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.-]{1,100}")


@dataclass(slots=True, eq=False)
class Scalar:
    """One piece of text.

    Attributes:
        text: As written, without quotes and with escapes replaced.
        plain: True if it stands there without quotes.
        start: Index of its first character in the source, its anchor included.
        end: Index after its last character.
    """

    text: str
    plain: bool
    start: int
    end: int


@dataclass(slots=True, eq=False)
class Sequence:
    """A list; `start` is the index of its first character."""

    start: int
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Mapping:
    """Keys and values, those that a merge key brings in included.

    Attributes:
        start: Index of its first character.
        entries: Key and value by the text of the key.
        merged: The value of the merge key `<<`, with what `entries` overrides.
    """

    start: int
    entries: dict[str, tuple[Scalar, Node]] = field(default_factory=dict)
    merged: Node | None = None


Node = Scalar | Sequence | Mapping


def path_text(steps: Iterable[str | int]) -> str:
    """The path to a value as messages show it, such as `jobs[0].timeout`.

    It ends before a key that is no plain name: such a key may be a misplaced value.
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
