"""A queue in the background: as a process of its own, or as a unit of systemd."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import typer

from ecoshare.cli.options import is_given
from ecoshare.errors import EcoshareError, Interrupted, UnfitEnvironment, UsageError
from ecoshare.lane.files import open_to_append
from ecoshare.queue.queue_folder import QueueFolder
from ecoshare.queue.tcp_entry import page_of

_ANSWERS_WITHIN_S = 120.0
"""Time (s) within which a queue can run jobs. A busy machine may take long to find its devices and to load torch."""

_LOOK_S = 0.1


def detached(command: list[str], folder: QueueFolder) -> str:
    """Start a command that serves a queue in the background, and wait until its queue can run jobs.

    A queue takes jobs before torch is loaded, but where torch cannot be loaded, it ends soon. Ctrl-C ends it.

    Returns:
        Lines for the user.

    Raises:
        UsageError: The queue is up already.
        EcoshareError: The queue has ended before it could run jobs.
        Interrupted: The user did not wait for it. It is down again.
    """
    if folder.is_up():
        raise UsageError(f"the queue {folder.name!r} is up already", f"`ecoshare down{folder.option}` ends it")
    folder.make()
    with contextlib.suppress(FileNotFoundError):
        folder.log.replace(folder.log.with_suffix(".log.1"))  # it may say why the last one has crashed
    with os.fdopen(open_to_append(folder.log), "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait_for(process, folder)
    except Interrupted:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_ANSWERS_WITHIN_S)
        raise
    page = page_of(folder)
    at = "" if page is None else f"\nits page is {page}"
    return f"the queue {folder.name!r} is up (process {process.pid}); its messages are in {folder.log}{at}"


def _wait_for(process: subprocess.Popen[bytes], folder: QueueFolder) -> None:
    until_s = time.monotonic() + _ANSWERS_WITHIN_S
    while time.monotonic() < until_s:
        if process.poll() is not None:
            raise _failed(process.returncode, folder.log)
        if folder.socket.exists() and _is_warm(folder):
            return
        time.sleep(_LOOK_S)
    raise UnfitEnvironment(f"the queue {folder.name!r} does not answer", f"see {folder.log}")


def _is_warm(folder: QueueFolder) -> bool:
    from ecoshare.api.queue_client import Queue

    try:
        return Queue(folder.name).status(0).warm
    except Interrupted:
        raise
    except EcoshareError:
        return False


def _failed(code: int, log: Path) -> EcoshareError:
    """Error that the process in the background has printed, with its exit code."""
    lines = log.read_text(errors="backslashreplace").splitlines()
    told = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    hints = [line.removeprefix("hint: ") for line in lines if line.startswith("hint: ")]
    error = EcoshareError(told[-1] if told else f"the queue has ended with exit code {code}", "".join(hints[-1:]))
    kind = next((each for each in EcoshareError.__subclasses__() if each.exit_code == code), None)
    return kind(str(error), error.hint) if kind is not None and kind.__init__ is EcoshareError.__init__ else error


def command_line(
    context: typer.Context, command: str = "", names: Collection[str] | None = None, **more: Any
) -> list[str]:
    """Words that run this command again with the options that the user gave, but in the foreground.

    Args:
        context: Context of the command.
        command: Another command, which has the same options; empty for this one.
        names: Parameters that it has; None for all.
        more: Other values of parameters.
    """
    words = [sys.executable, "-m", "ecoshare", command or str(context.info_name)]
    for parameter in context.command.params:
        name = str(parameter.name)
        value = more.get(name, context.params.get(name))
        if name in ("detach", "print_unit") or value is None or (names is not None and name not in names):
            continue
        # A default that the environment can replace is given, too.
        if not (name in more or is_given(context, name) or parameter.envvar is not None):
            continue
        option = max(parameter.opts, key=len)
        if value is True:
            words.append(option)
        elif value is False:
            words += [max(parameter.secondary_opts, key=len)] if parameter.secondary_opts else []
        else:
            for each in value if isinstance(value, list | tuple) else [value]:
                words += [option, str(each.absolute()) if isinstance(each, Path) else str(each)]
    return words


def unit(context: typer.Context) -> str:
    """Systemd user unit that serves the queue of this command, and goes on with its jobs after a crash.

    Raises:
        UsageError: An option has a line break or another control character.
    """
    name = context.params["name"]
    state = os.environ.get("ECOSHARE_STATE")
    environment = f"Environment={_word_in_unit(f'ECOSHARE_STATE={Path(state).absolute()}')}\n" if state else ""
    begin = _in_unit(command_line(context, resume=True))
    end = _in_unit([sys.executable, "-m", "ecoshare", "down", "--queue", name])
    return f"""\
# Save as ~/.config/systemd/user/ecoshare-{name}.service, then:
#   systemctl --user daemon-reload && systemctl --user enable --now ecoshare-{name}
# `loginctl enable-linger` keeps it up while you are logged out.
[Unit]
Description=ecoshare queue {name}

[Service]
{environment}ExecStart={begin}
ExecStop={end}
Restart=on-failure
RestartSec=5
KillMode=mixed
TimeoutStopSec=60

[Install]
WantedBy=default.target
"""


def _in_unit(words: list[str]) -> str:
    """Command line as it stands in a unit, where `$` is expanded."""
    return " ".join(_word_in_unit(word).replace("$", "$$") for word in words)


def _word_in_unit(word: str) -> str:
    """Word as it stands in a unit: systemd knows the quotes of a shell, and expands `%` inside them."""
    if not word.isprintable():
        raise UsageError(f"{word!a} cannot stand in a unit, where each line is a setting")
    return shlex.quote(word).replace("%", "%%")
