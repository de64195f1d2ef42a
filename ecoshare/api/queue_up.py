"""`up`: a queue, which runs jobs that are submitted to it until it is ended.

::

    up(given)                ──► request ──► plan ──► options.json in the folder of the queue
    up(given, resume=True)   ──► options.json, changed by what is given ──► request ──► plan ──► options.json
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoshare.api.request_values import check_control, request_class, with_fields
from ecoshare.api.run_jobs import SharingRequest, here_or_elsewhere, holder, job_planner
from ecoshare.api.run_result import RunResult, restore_error
from ecoshare.errors import JobFailed, UsageError

if TYPE_CHECKING:
    from ecoshare.queue.queue_folder import QueueFolder

_OF_A_SESSION = ("name", "resume", "wait", "note", "progress", "signals")
"""Fields of a request that are no options of the queue."""

_OWN_OPTIONS = {"policy": {"options"}, "profiles": {"use_profiles"}, "on": {"address", "ship"}}
"""Options that mean nothing beside another value of one: they are kept with it only."""


@request_class
class UpRequest(SharingRequest):
    """Request for a queue. The fields, with those of `SharingRequest`, are the options of `ecoshare up`.

    Attributes:
        name: Name of the queue.
        resume: Whether jobs that an earlier session of the queue has left go on. They keep their devices then, and all
            other options are those of that session, too, unless they are given.
        keep_s: Time (s) for which the data of a job are kept after its end; None for ever.
        listen: Loopback address, such as `127.0.0.1:8265`, at which the queue is served over TCP, too, with its page;
            port 0 for any free one. The note that tells the address has the token. None for the socket alone.
    """

    name: str = "default"
    resume: bool = False
    keep_s: float | None = None
    listen: str | None = None


def up(request: UpRequest | None = None, /, **fields: Any) -> RunResult:
    """Serve a queue until `ecoshare down`, Ctrl-C or SIGTERM ends it. Jobs that have not ended wait for another `up`.

    Args:
        request: A request; None for one of `fields` alone. If it resumes, a field with its default is one not given.
        fields: Fields of the `UpRequest`.

    Raises:
        UsageError: The fields contradict each other, the queue is up already, or it has jobs left without `resume`.
        UnfitEnvironment: This machine cannot run jobs, another run uses a device, or the address is in use.
        NotRestored: Knobs of a device could not be restored.
        KeyboardInterrupt: The user pressed Ctrl-C.
    """
    request, lines = resumed(request, fields)
    for line in lines:
        request.note(line)
    check_control(request.control)
    request = here_or_elsewhere(request)
    from ecoshare.api.caller_process import drive
    from ecoshare.devices.choice import find_all
    from ecoshare.queue.opening import open_queue
    from ecoshare.queue.tcp_entry import ListenAddress

    listen = None if request.listen is None else ListenAddress.parse(request.listen)
    serve = partial(
        open_queue,
        request.name,
        job_planner(request, request.name),
        partial(find_all, request.device, request.devices),
        request.device,
        request.progress,
        request.resume,
        kept_options(request),
        request.keep_s,
        listen,
        holder(request),
        request.note,
    )
    return drive(request.signals, lambda signals: RunResult.of(serve(signals)))


def resumed(request: UpRequest | None, given: Mapping[str, Any]) -> tuple[UpRequest, list[str]]:
    """Request with the options that the queue had, as far as none are given, if it is to go on.

    Args:
        request: A request; None for the defaults.
        given: Fields that are given beside it.

    Returns:
        The request, and lines for the user.

    Raises:
        UsageError: The text cannot be the name of a queue, the options that it had cannot be read, or other devices are
            given for jobs that keep theirs.
    """
    from ecoshare.queue.client import left_in
    from ecoshare.queue.queue_folder import QueueFolder

    whole = with_fields(request or UpRequest(), dict(given))
    if not whole.resume:
        return whole, []
    own = {each.name: each for each in _options()}
    named = {name for name, each in own.items() if name in given or getattr(whole, name) != _default(each)}
    folder = QueueFolder.of(whole.name)
    had = {name: value for name, value in _read(folder).items() if name in own}
    before = replace(whole, **{name: had.get(name, _default(each)) for name, each in own.items()})
    for name in named & _OWN_OPTIONS.keys():
        if getattr(whole, name) != getattr(before, name):
            named = named | _OWN_OPTIONS[name]  # those that are kept belong to the other one
    found = replace(before, **{name: getattr(whole, name) for name in named})
    then, now = _plain(before), _plain(found)
    kept = [
        option_words(name, value) for name, value in now.items() if value == then[name] and _is_set(own[name], value)
    ]
    lines = [f"the options are those of before: {' '.join(kept)}"] if kept else []
    changes = {
        name: f"{option_words(name, value)} instead of {option_words(name, then[name])}"
        for name, value in now.items()
        if value != then[name]
    }
    if (other := changes.get("device") or changes.get("devices")) and left_in(folder):
        raise UsageError(
            f"{other}: the jobs that are left keep theirs",
            f"`ecoshare down --clear{folder.option}` forgets them",
        )
    return found, [*lines, *changes.values()]


def kept_options(request: UpRequest) -> dict[str, Any]:
    """Options of a queue as the folder of the queue has them, for its next session."""
    return _plain(request)


def _options() -> list[Field[Any]]:
    """Fields of a request that are options of the queue."""
    return [each for each in fields(UpRequest) if each.name not in _OF_A_SESSION]


def _default(option: Field[Any]) -> Any:
    return option.default if option.default_factory is MISSING else option.default_factory()


def _plain(request: UpRequest) -> dict[str, Any]:
    """Options of a request, as JSON has them. Paths are absolute: another session may begin in another folder."""
    found: dict[str, Any] = {}
    for option in _options():
        value = getattr(request, option.name)
        if isinstance(value, Mapping):
            value = dict(value)
        elif value is not None and "AnyPath" in str(option.type):
            value = str(Path(value).absolute())
        found[option.name] = value
    return found


def _is_set(option: Field[Any], value: Any) -> bool:
    return bool(value != _default(option))


def _read(folder: QueueFolder) -> dict[str, Any]:
    """Options that a queue had; empty for one that has none yet.

    Raises:
        UsageError: They cannot be read.
    """
    from ecoshare.base import documents
    from ecoshare.queue.queue_folder import own_folder

    try:
        with own_folder(folder.path), documents.open_regular(folder.options) as file:
            found = documents.parse(file.read())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{folder.options}: {error}", "remove the file: the queue then has the default options"
        ) from error
    return found if isinstance(found, dict) else {}


_NAMES = {"options": "option", "keep_s": "keep", "node_timeout_s": "node-timeout", "use_profiles": "no-profiles"}
"""Options of the command that have other names than the fields of the request."""


def option_words(field: str, value: Any) -> str:
    """Option of the command for a field of a request, with its value."""
    from ecoshare.jobs.quantities import format_duration

    option = f"--{_NAMES.get(field, field).replace('_', '-')}"
    if field == "use_profiles":
        value = not value
    if value is None or value is False or value == {}:
        return f"no {option}"
    if value is True:
        return option
    if isinstance(value, Mapping):
        return " ".join(f"{option} {name}={number:g}" for name, number in value.items())
    return f"{option} {shlex.quote(format_duration(value) if field.endswith('_s') else str(value))}"


def check_end(result: RunResult, name: str) -> None:
    """Return if a queue ended because it was asked to. The command `ecoshare up` exits with the code of the error.

    Args:
        result: Result of the queue.
        name: Name of the queue.

    Raises:
        NotRestored: Knobs of a device could not be restored.
        JobFailed: All devices have failed. Jobs that had not ended wait for another `up`.
    """
    from ecoshare.queue.queue_folder import QueueFolder

    if result.unrestored:
        raise restore_error(result)
    devices = result.summary.devices
    failed = [f"{each.name} failed: {each.failed.reason}" for each in devices if each.failed is not None]
    if failed and len(failed) == len(devices):
        raise JobFailed(
            f"the queue {name!r} has no device left: {'; '.join(failed)}",
            f"`ecoshare up --resume{QueueFolder.of(name).option}` goes on with its jobs on the devices that work",
        )
