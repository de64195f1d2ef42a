"""Checks of jobs with the key `service:` that the schema cannot make: keys that exclude it, and its trace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ecoshare.errors import Mistake
from ecoshare.jobs.document import Document
from ecoshare.jobs.nodes import Mapping, Node, Scalar
from ecoshare.jobs.paths import JobPaths
from ecoshare.jobs.request_trace import read_trace
from ecoshare.jobs.values import plain_values

_EXCLUDED: Final = {
    "sweep": ("", "a service is one job: it has no sweep"),
    "iterations": ("", "a service has requests, and no number of iterations"),
    "gpus": ("1", "a service runs on one device"),
    "most_gpus": ("1", "a service runs on one device"),
    "launch": ("", "a service runs in one process"),
    "nodes": ("1", "a service runs on one device"),
    "preemptible": ("false", "a service answers requests all the time, so it is not stopped for other jobs"),
}
"""Keys that exclude a service: the words that are allowed all the same, and the reason."""


@dataclass(slots=True)
class ServiceChecks:
    """Checks of the services of one file. A trace that several services name is read once."""

    document: Document
    paths: JobPaths
    _traces: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    _ports: dict[str, str] = field(default_factory=dict)

    def mistakes(self, job: Mapping, defaults: Node | None, where: str) -> Iterator[Mistake]:
        """Mistakes of a job with a service; none for any other job.

        Args:
            job: The job.
            defaults: Options of the file that hold for keys that the job does not have.
            where: Path of the job, such as `jobs[0]`.
        """
        service = _value(job, "service")
        if service is None:
            return
        for key, (allowed, why) in _EXCLUDED.items():
            own = key in job.entries
            value = _value(job if own else defaults, key)
            if value is None or (isinstance(value, Scalar) and value.text in allowed.split()):
                continue
            if own:
                yield self.document.source.mistake(value.start, f"{where}.{key}", why)
            else:
                what = f"{why}, and 'defaults' set {key!r}: write `{key}: {(allowed or 'null').split()[0]}` here"
                yield self.document.source.mistake(service.start, f"{where}.service", what)
        yield from self._trace_mistakes(_value(service, "requests"), f"{where}.service.requests")
        port = _value(service, "port")
        if isinstance(port, Scalar) and (first := self._ports.setdefault(port.text, where)) != where:
            yield self.document.source.mistake(port.start, f"{where}.service.port", f"{first} has this port already")

    def _trace_mistakes(self, requests: Node | None, where: str) -> Iterator[Mistake]:
        trace, task = _value(requests, "trace"), _value(requests, "task")
        if not isinstance(trace, Scalar) or not trace.text.strip():
            return  # the schema reports a value that is no path
        key = trace.text, task.text if isinstance(task, Scalar) else ""
        if key not in self._traces:
            self._traces[key] = self._problems(*key)
        for problem in self._traces[key]:
            yield self.document.source.mistake(trace.start, f"{where}.trace", problem)

    def _problems(self, text: str, task: str) -> tuple[str, ...]:
        try:
            path = self.paths.find("trace", text)
        except ValueError as error:
            return (str(error),)
        return read_trace(path, repr(text)[1:-1], task).problems


def _value(node: Node | None, key: str) -> Node | None:
    """Value under a key; None if the node is no mapping, or the key is missing or null."""
    value = node.entries[key][1] if isinstance(node, Mapping) and key in node.entries else None
    return None if value is None or plain_values(value) is None else value
