"""Load a job file: return jobs that can run, or report all its mistakes."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ecoshare.common.collector import collector_paused
from ecoshare.errors import InvalidJobFile, Mistake
from ecoshare.jobs.dependency_checks import dependency_mistakes
from ecoshare.jobs.document import MAX_MISTAKES, Document, read_document
from ecoshare.jobs.end_commands import OF_A_JOB, OF_THE_RUN, on_end_mistakes
from ecoshare.jobs.fields import MAX_NAME_LENGTH
from ecoshare.jobs.nodes import Mapping, Node, Scalar, Sequence
from ecoshare.jobs.paths import PATH_KEYS, JobPaths
from ecoshare.jobs.quoted import quoted
from ecoshare.jobs.schema import JobConfig, JobOptions, program_problem
from ecoshare.jobs.service_checks import ServiceChecks
from ecoshare.jobs.service_config import RETRIES, ServiceConfig
from ecoshare.jobs.source import decode, read_bytes
from ecoshare.jobs.sweep import LONGEST_NUMBER, names_in, sweep_of
from ecoshare.jobs.validate import validate
from ecoshare.jobs.values import plain_values


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
