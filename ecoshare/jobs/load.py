"""Load a job file: return jobs that can run, or report all its mistakes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator
from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Final

from ecoshare.base.documents import collector_paused
from ecoshare.errors import InvalidJobFile, Mistake
from ecoshare.jobs.document import (
    MAX_MISTAKES,
    Document,
    Mapping,
    Node,
    Scalar,
    Sequence,
    Source,
    decode,
    plain_values,
    read_bytes,
    read_document,
)
from ecoshare.jobs.end_commands import OF_A_JOB, OF_THE_RUN, PATH_KEYS, JobPaths, on_end_mistakes
from ecoshare.jobs.fields import MAX_NAME_LENGTH, is_name
from ecoshare.jobs.quantities import quoted
from ecoshare.jobs.request_trace import read_trace
from ecoshare.jobs.schema import JobConfig, JobOptions, program_problem
from ecoshare.jobs.service_config import RETRIES, ServiceConfig
from ecoshare.jobs.sweep import LONGEST_NUMBER, names_in, sweep_of
from ecoshare.jobs.validate import validate

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


MASK: Final = '"***"'

_ANCHOR = re.compile(r"&\S+\s+")
_LINE_BREAK = re.compile(r"\r\n|\r|\n")


@collector_paused()
def masked(text: str) -> str:
    """Text of a job file with each value under any `env:` replaced by `"***"`.

    The module replaces pieces of the text; it does not write the data out again. The copy in a run folder thus keeps
    the comments, order and layout of the user's file.

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


@dataclass(frozen=True, slots=True)
class LoadedJobs:
    """A job file that holds no mistake.

    Attributes:
        path: Path as the user wrote it; for a file made from scripts, a name for the run.
        digest: SHA-256 of the bytes of the file, in hexadecimal.
        text: The text of the file, with the values of `env:`. Pass it through `mask.masked` before it is stored.
        jobs: The jobs in the order of the file, with defaults filled in and absolute paths.
        made: True if the file was made from scripts or from a mapping; its only copy on disk is in the run folder.
        on_end: Command for the end of the run; its program is an absolute path.
        given: Names that jobs have in the file, by the names that they were given instead.
    """

    path: Path
    digest: str
    text: str = field(repr=False)
    jobs: tuple[JobConfig, ...]
    made: bool = False
    on_end: tuple[str, ...] = ()
    given: AnyMapping[str, str] = field(default_factory=dict)


def load(path: Path, base: Path | None = None) -> LoadedJobs:
    """Load the jobs of a file.

    Args:
        path: Path of the file.
        base: Folder that relative paths in the file start at; None for the folder of the file.

    Raises:
        UsageError: The file is missing or cannot be read.
        InvalidJobFile: The file holds mistakes, see `parse`.
    """
    return parse(read_bytes(path), path, str(path), path.absolute().parent if base is None else base)


@collector_paused()
def parse(data: bytes, path: Path, shown: str, base: Path, others: Collection[str] = ()) -> LoadedJobs:
    """Jobs in the bytes of a job file.

    `env` of a job is added to `env` of the defaults. Any other key of a job replaces the default.

    Args:
        data: Content of the file.
        path: Path of the file, see `LoadedJobs`.
        shown: Name of the file in messages.
        base: Folder that relative paths in the file start at.
        others: Names of jobs outside of the file that its jobs may wait for.

    Raises:
        InvalidJobFile: The file holds mistakes. The error lists all of them (at most a thousand), or those before
            the place where the YAML cannot be read further.
    """
    source = decode(data)
    if isinstance(source, Mistake):
        raise InvalidJobFile(shown, [source])
    document = read_document(source)
    if document.root is None:
        raise InvalidJobFile(shown, list(document.mistakes))
    paths = JobPaths(base)
    file, jobs, refused = validate(document)
    # A set, since the schema and the checks below may report the same mistake.
    mistakes = {*document.mistakes, *refused, *_beyond_the_schema(document, paths, others)}
    if mistakes or file is None:
        raise InvalidJobFile(shown, sorted(mistakes)[:MAX_MISTAKES])
    complete = tuple(_complete(job, file.defaults, paths) for job in jobs)
    digest = hashlib.sha256(data).hexdigest()
    return LoadedJobs(path, digest, source.text, complete, on_end=_command(file.on_end, paths))


def mistake_of(loaded: LoadedJobs, job: str, key: str, what: str, hint: str = "") -> InvalidJobFile:
    """Error for a value that the file may have, and that cannot be met here, with its place in the file.

    Args:
        loaded: Jobs of the file.
        job: Name of the job.
        key: Key of the value, in the job or in the defaults.
        what: Description of the mistake.
        hint: Remedy for the user.
    """
    source = decode(loaded.text.encode())
    assert not isinstance(source, Mistake), "it was decoded before"
    document = read_document(source)
    root = document.root
    assert isinstance(root, Mapping), "it was read before"
    jobs = root.entries["jobs"][1]
    for index, node in enumerate(jobs.items if isinstance(jobs, Sequence) else ()):
        name = _text(node, "name")
        if isinstance(node, Mapping) and name is not None and name.text == loaded.given.get(job, job):
            place = node.entries[key][1] if key in node.entries else node
            mistake = document.source.mistake(place.start, f"jobs[{index}].{key}", what)
            return InvalidJobFile(str(loaded.path), [mistake], hint)
    return InvalidJobFile(str(loaded.path), [document.source.mistake(root.start, job, what)], hint)


def _beyond_the_schema(document: Document, paths: JobPaths, others: Collection[str]) -> Iterator[Mistake]:
    """Mistakes that the schema cannot see, or does not check in a job with another mistake.

    The checks work on nodes, because a job that the schema refuses is never built.
    """
    root = document.root
    if not isinstance(root, Mapping):
        return
    yield from on_end_mistakes(root, OF_THE_RUN, "", document, paths)
    defaults = root.entries["defaults"][1] if "defaults" in root.entries else None
    if defaults is not None:
        yield from on_end_mistakes(defaults, OF_A_JOB, "defaults", document, paths)
        yield from _path_mistakes(defaults, None, "defaults", document, paths)
    jobs = root.entries["jobs"][1] if "jobs" in root.entries else None
    first_with_name: dict[str, tuple[int, Scalar]] = {}
    named: dict[str, tuple[int, Mapping]] = {}
    sweeps: dict[str, int] = {}
    services = ServiceChecks(document, paths)
    for index, job in enumerate(jobs.items if isinstance(jobs, Sequence) else ()):
        if not isinstance(job, Mapping):
            continue
        where = f"jobs[{index}]"
        yield from _path_mistakes(job, defaults, where, document, paths)
        yield from on_end_mistakes(job, OF_A_JOB, where, document, paths)
        yield from services.mistakes(job, defaults, where)
        problem = program_problem(*(_is_set(job, key) for key in ("script", "module")))
        if problem:
            yield document.source.mistake(job.start, where, problem)
        name = _text(job, "name")
        if name is None:
            continue
        if _is_set(job, "sweep"):
            sweeps.setdefault(name.text, index)
            yield from _sweep_mistakes(job, name, where, document)
        named.setdefault(name.text, (index, job))
        first, taken = first_with_name.setdefault(name.text, (index, name))
        if first != index:
            line = document.source.line(taken.start)
            what = f"the name {quoted(name.text)} is already taken by jobs[{first}] on line {line}"
            yield document.source.mistake(name.start, f"{where}.name", what)
    for text, (index, name) in first_with_name.items():
        if (sweep := sweeps.get(sweep_of(text))) is not None:
            what = f"the name {quoted(text)} is that of a trial of jobs[{sweep}]"
            yield document.source.mistake(name.start, f"jobs[{index}].name", what)
    yield from dependency_mistakes(named, others, document)


def _sweep_mistakes(job: Mapping, name: Scalar, where: str, document: Document) -> Iterator[Mistake]:
    """Mistakes in a job with a sweep: a name too long for its trials, and braces that name no varied value."""
    sweep = job.entries["sweep"][1] if "sweep" in job.entries else None
    if not isinstance(sweep, Mapping):
        return
    longest = MAX_NAME_LENGTH - LONGEST_NUMBER
    if len(name.text) > longest:
        what = f"a sweep's name has up to {longest} characters, since its trials' names are longer"
        yield document.source.mistake(name.start, f"{where}.name", what)
    known = _varied(sweep)
    for key in ("args", "resume_args"):
        words = job.entries[key][1] if key in job.entries else None
        for place, word in enumerate(words.items if isinstance(words, Sequence) and known else ()):
            for unknown in sorted(names_in(word.text) - known) if isinstance(word, Scalar) else ():
                close = get_close_matches(unknown, known, n=1)
                hint = f"did you mean '{{{close[0]}}}'?" if close else f"it varies {', '.join(sorted(known))}"
                what = f"{quoted('{' + unknown + '}')} is nothing that the sweep varies; {hint}"
                yield document.source.mistake(word.start, f"{where}.{key}[{place}]", what)


def _varied(sweep: Mapping) -> set[str]:
    """Names that a sweep varies; empty if the file does not give them."""
    space = next((sweep.entries[key][1] for key in ("grid", "random", "optuna") if key in sweep.entries), None)
    if isinstance(space, Mapping) and "optuna" in sweep.entries:
        space = space.entries["space"][1] if "space" in space.entries else None
    return set(space.entries) if isinstance(space, Mapping) else set()


def _path_mistakes(
    node: Node, defaults: Node | None, where: str, document: Document, paths: JobPaths
) -> Iterator[Mistake]:
    """Mistakes in the paths of a job or of the defaults: files and folders that cannot be used.

    Args:
        defaults: Options that hold for keys that the job does not set; None for the defaults themselves.
    """
    cwd = _text(node, "cwd") or (_text(defaults, "cwd") if defaults is not None else None)
    for key in PATH_KEYS:
        value = _text(node, key)
        # The schema reports a value that is no path at all.
        if value is not None and value.text.strip():
            try:
                paths.find(key, value.text)
            except ValueError as error:
                hint = paths.under_cwd(value.text, cwd.text) if key == "script" and cwd is not None else ""
                yield document.source.mistake(value.start, f"{where}.{key}", f"{error}{hint}")


def _text(node: Node, key: str) -> Scalar | None:
    """Text under this key; None unless the node is a mapping and the value is text."""
    value = node.entries[key][1] if isinstance(node, Mapping) and key in node.entries else None
    return value if isinstance(value, Scalar) and plain_values(value) is not None else None


def _is_set(job: Mapping, key: str) -> bool:
    return key in job.entries and plain_values(job.entries[key][1]) is not None


def _complete(job: JobConfig, defaults: JobOptions, paths: JobPaths) -> JobConfig:
    missing = defaults.model_fields_set - job.model_fields_set
    changes: dict[str, Any] = {name: getattr(defaults, name) for name in missing}
    changes["env"] = {**defaults.env, **job.env}
    changes["after"], changes["after_ok"] = tuple(dict.fromkeys((*job.after, *job.after_ok))), ()
    changes["cwd"] = paths.folder / changes.get("cwd", job.cwd)
    if job.script is not None:
        changes["script"] = paths.folder / job.script
    if job.service is not None:
        changes["service"] = _with_trace(job.service, paths)
        if "retries" not in defaults.model_fields_set | job.model_fields_set:
            changes["retries"] = RETRIES
    python = changes.get("python", job.python)
    if python is not None:
        changes["python"] = str(paths.find("python", python))
    changes["on_end"] = _command(changes.get("on_end", job.on_end), paths)
    return job.model_copy(update=changes)


def _with_trace(service: ServiceConfig, paths: JobPaths) -> ServiceConfig:
    """The service with an absolute path of its trace, if it has one."""
    requests = service.requests
    if requests is None or requests.trace is None:
        return service
    return service.model_copy(update={"requests": requests.model_copy(update={"trace": paths.folder / requests.trace})})


def _command(words: tuple[str, ...], paths: JobPaths) -> tuple[str, ...]:
    if not words or names_in(words[0]):
        return words
    return (str(paths.find("on_end", words[0])), *words[1:])
