"""Mask the values of `env:`, so that a copy of a job file can be stored.

The module replaces pieces of the text; it does not write the data out again. The copy in a run folder thus keeps
the comments, order and layout of the user's file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ecoshare.common.collector import collector_paused
from ecoshare.jobs.document import read_document
from ecoshare.jobs.nodes import Node, Scalar, Sequence
from ecoshare.jobs.source import Source
from ecoshare.jobs.values import plain_values

MASK: Final = '"***"'

_ANCHOR = re.compile(r"&\S+\s+")
_LINE_BREAK = re.compile(r"\r\n|\r|\n")


@collector_paused()
def masked(text: str) -> str:
    """Text of a job file with each value under any `env:` replaced by `"***"`.

    A value that reaches `env:` through an alias or a merge key is masked where it is written. Line numbers stay.
    Comments stay too, even if they hold a secret.

    Raises:
        ValueError: The text is not YAML, or holds mistakes; `load` lists them.
    """
    source = Source(text)
    document = read_document(source)
    if document.root is None or document.mistakes:
        raise ValueError("only the text of a valid job file can be masked")
    secrets = {scalar.start: scalar for scalar in _secrets(document.root)}
    pieces, done = [], 0
    for start, scalar in sorted(secrets.items()):
        written = source.text[start : scalar.end]
        anchor = _ANCHOR.match(written)
        breaks = _LINE_BREAK.findall(written, anchor.end() if anchor else 0)
        pieces += [source.text[done:start], anchor[0] if anchor else "", MASK, *breaks]
        done = scalar.end
    return "".join([*pieces, source.text[done:]])


def _secrets(root: Node) -> Iterator[Scalar]:
    """Each scalar under a key `env`, at any depth, at least once."""
    seen: set[tuple[int, bool]] = set()  # aliases make the graph far smaller than the tree
    waiting: list[tuple[Node, bool]] = [(root, False)]
    while waiting:
        node, is_secret = waiting.pop()
        if (id(node), is_secret) in seen:
            continue
        seen.add((id(node), is_secret))
        if isinstance(node, Scalar):
            if is_secret and not (node.plain and not node.text):
                yield node
        elif isinstance(node, Sequence):
            waiting += [(item, is_secret) for item in node.items]
        else:
            waiting += [(value, is_secret or _is_environment(key, value)) for key, (_, value) in node.entries.items()]
            if node.merged is not None:
                # A merged value that the mapping overrides is not in `entries`, but it stands in the text.
                waiting.append((node.merged, is_secret))


def _is_environment(key: str, value: Node) -> bool:
    # `env: null` is an empty environment; masked, it would no longer load.
    return key == "env" and not (isinstance(value, Scalar) and plain_values(value) is None)
