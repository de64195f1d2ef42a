"""Checks of `after:` and its kind: names that are jobs or sweeps of the file, and no circle."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from typing import Final

from ecoshare.errors import Mistake
from ecoshare.jobs.document import Document
from ecoshare.jobs.fields import is_name
from ecoshare.jobs.nodes import Mapping, Scalar, Sequence
from ecoshare.jobs.quoted import quoted
from ecoshare.jobs.values import plain_values

KEYS: Final = ("after", "after_ok", "after_any")


def dependency_mistakes(
    jobs: dict[str, tuple[int, Mapping]], others: Collection[str], document: Document
) -> Iterator[Mistake]:
    """Mistakes in what the jobs of a file wait for.

    Args:
        jobs: Place and node of each job of the file, by its name.
        others: Names of jobs outside of the file that its jobs may wait for.
        document: The file.
    """
    places: dict[tuple[str, str], tuple[int, str]] = {}
    for name, (index, job) in jobs.items():
        for key, number, word in _words(job):
            where = f"jobs[{index}].{key}[{number}]"
            if word.text in jobs:
                places.setdefault((name, word.text), (word.start, where))
            problem = _problem(name, word.text, jobs, others)
            if problem:
                yield document.source.mistake(word.start, where, problem)
    waits_for = {name: {to for own, to in places if own == name and to != name} for name in jobs}
    for first, second, *others_of_it in _circles(waits_for):
        start, where = places[first, second]
        which = "".join(f", which waits for {each}" for each in others_of_it)
        yield document.source.mistake(start, where, f"a circle: {first} waits for {second}{which}")


def _problem(name: str, to: str, jobs: dict[str, tuple[int, Mapping]], others: Collection[str]) -> str:
    if to == name:
        return "a job cannot wait for itself"
    if to in jobs:
        return f"{quoted(to)} serves until all other jobs have ended" if _is_open_ended(jobs[to][1]) else ""
    if to in others:
        return ""
    close = get_close_matches(to, [*jobs, *others], n=1)
    return f"there is no job {quoted(to)}" + (f"; did you mean {quoted(close[0])}?" if close else "")


def _words(job: Mapping) -> Iterator[tuple[str, int, Scalar]]:
    """Key, number and node of each name that a job waits for."""
    for key in KEYS:
        value = job.entries[key][1] if key in job.entries else None
        for number, word in enumerate(value.items if isinstance(value, Sequence) else ()):
            if isinstance(word, Scalar) and is_name(word.text):  # the schema reports any other text
                yield key, number, word


def _is_open_ended(job: Mapping) -> bool:
    """Whether a job is a service without requests of its own, so that it has no last one."""
    service = job.entries["service"][1] if "service" in job.entries else None
    return isinstance(service, Mapping) and (
        "requests" not in service.entries or plain_values(service.entries["requests"][1]) is None
    )


def _circles(waits_for: dict[str, set[str]]) -> Iterator[list[str]]:
    """Circles, each from a job back to the same job. A circle is broken before the next one is sought."""
    while True:
        try:
            TopologicalSorter(waits_for).prepare()
        except CycleError as error:
            found: list[str] = error.args[1][::-1]  # it is given from what is waited for to what waits
            first = min(found[:-1], key=list(waits_for).index)
            turn = found[:-1].index(first)
            circle = [*found[turn:-1], *found[:turn], first]
            yield circle
            waits_for[circle[0]].discard(circle[1])
        else:
            return
