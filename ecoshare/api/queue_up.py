"""`up`: a queue, which runs jobs that are submitted to it until it is ended.

::

    up(given)                ──► request ──► plan ──► options.json in the folder of the queue
    up(given, resume=True)   ──► options.json, changed by what is given ──► request ──► plan ──► options.json
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import Field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ecoshare.api.request_values import Caller
from ecoshare.api.run_jobs import holder, job_planner
from ecoshare.api.run_result import RunResult, restore_error
from ecoshare.errors import JobFailed, UsageError
from ecoshare.option_fields import default_of, flag_of, kept, option, options_of, request_class, with_fields
from ecoshare.run_options import RunOptions, age_s

if TYPE_CHECKING:
    from ecoshare.queue.queue_folder import QueueFolder

_OWN_OPTIONS = {"policy": {"options"}, "profiles": {"use_profiles"}, "on": {"address", "ship"}}
"""Options that mean nothing beside another value of one: they are kept with it only."""


def _age_s(text: str) -> float:
    return age_s("--keep", text)


@request_class
class QueueOptions(RunOptions):
    """Options of a queue: those of a run, and its own."""

    keep_s: float | None = option(
        "Remove the data of jobs that ended longer ago, such as 30d, once a day. Default: never.",
        default=None,
        form="AGE",
        flag="--keep",
        parse=_age_s,
    )
    listen: str | None = option(
        "Serve the queue at a loopback address, too, with a page; port 0 for any free one. Prints a token.",
        default=None,
        form="HOST:PORT",
    )


@request_class
class UpRequest(QueueOptions, Caller):
    """Request for a queue: its options, and these fields. [The table](../commands.md#options-of-run) has the options.

    Attributes:
        name: Name of the queue.
        resume: Whether jobs that an earlier session of the queue has left go on. They keep their devices then, and all
            other options are those of that session, too, unless they are given.
    """

    name: str = "default"
    resume: bool = False


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
    request.check()
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
        _of_queue(request),
        request.keep_s,
        listen,
        holder(request, request.note),
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
    own = _options()
    named = {name for name, each in own.items() if name in given or getattr(whole, name) != default_of(each)}
    folder = QueueFolder.of(whole.name)
    had = {name: value for name, value in _read(folder).items() if name in own}
    before = replace(whole, **{name: had.get(name, default_of(each)) for name, each in own.items()})
    for name in named & _OWN_OPTIONS.keys():
        if getattr(whole, name) != getattr(before, name):
            named = named | _OWN_OPTIONS[name]  # those that are kept belong to the other one
    found = replace(before, **{name: getattr(whole, name) for name in named})
    then, now = (_of_queue(each) for each in (before, found))
    unchanged = [
        option_words(own[name], value)
        for name, value in now.items()
        if value == then[name] and value != default_of(own[name])
    ]
    lines = [f"the options are those of before: {' '.join(unchanged)}"] if unchanged else []
    changes = {
        name: f"{option_words(own[name], value)} instead of {option_words(own[name], then[name])}"
        for name, value in now.items()
        if value != then[name]
    }
    if (other := changes.get("device") or changes.get("devices")) and left_in(folder):
        raise UsageError(
            f"{other}: the jobs that are left keep theirs",
            f"`ecoshare down --clear{folder.option}` forgets them",
        )
    return found, [*lines, *changes.values()]


def _options() -> dict[str, Field[Any]]:
    """Options that a queue keeps for its next session. A wait for a device is one of this session."""
    return {name: each for name, each in options_of(QueueOptions).items() if name != "wait"}


def _of_queue(request: UpRequest) -> dict[str, Any]:
    own = _options()
    return {name: value for name, value in kept(request, QueueOptions).items() if name in own}


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


def option_words(option: Field[Any], value: Any) -> str:
    """Option of the command line with a value."""
    from ecoshare.jobs.quantities import format_duration

    flag = flag_of(option)
    if option.default is True:  # the option takes away what the default gives
        value = not value
    if value is None or value is False or value == {}:
        return f"no {flag}"
    if value is True:
        return flag
    if isinstance(value, Mapping):
        return " ".join(f"{flag} {name}={number:g}" for name, number in value.items())
    return f"{flag} {shlex.quote(format_duration(value) if option.name.endswith('_s') else str(value))}"


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
