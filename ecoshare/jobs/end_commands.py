"""The key `on_end:`: a command that runs at the end of a job or of the run, and checks of that command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from ecoshare.errors import Mistake
from ecoshare.jobs import nodes
from ecoshare.jobs.document import Document
from ecoshare.jobs.paths import JobPaths
from ecoshare.jobs.quoted import quoted
from ecoshare.jobs.sweep import filled, names_in

OF_A_JOB: Final = ("job", "state", "run")
"""Placeholders in the command of a job: its name, its final state, and the run folder."""

OF_THE_RUN: Final = ("state", "run")
"""Placeholders in the command of the run: its final state and the run folder."""


def on_end_words(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Words of a command with its placeholders filled in; other braces stay."""
    return [filled(word, dict(values)) for word in command]


def on_end_mistakes(
    node: nodes.Node, known: Sequence[str], where: str, document: Document, paths: JobPaths
) -> Iterator[Mistake]:
    """Mistakes under the key `on_end` of a mapping: a missing program, and unknown placeholders.

    Args:
        known: The placeholders that are valid in this command.
        where: Path of the mapping; empty for the document as a whole.
    """
    command = node.entries["on_end"][1] if isinstance(node, nodes.Mapping) and "on_end" in node.entries else None
    for place, word in enumerate(command.items if isinstance(command, nodes.Sequence) else ()):
        if not isinstance(word, nodes.Scalar):
            continue  # the schema reports this
        path = f"{where}.on_end[{place}]".lstrip(".")
        for unknown in sorted(names_in(word.text) - set(known)):
            yield document.source.mistake(word.start, path, _unknown(unknown, known))
        if place == 0 and word.text.strip() and not names_in(word.text):
            try:
                paths.find("on_end", word.text)
            except ValueError as error:
                yield document.source.mistake(word.start, path, str(error))


def _unknown(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name[:100], known, n=1)
    hint = f"did you mean '{{{close[0]}}}'?" if close else "known are " + ", ".join(f"'{{{each}}}'" for each in known)
    only = " here: the run is more than one job" if name in OF_A_JOB else ""
    return f"{quoted('{' + name + '}')} stands for nothing{only}; {hint}"
