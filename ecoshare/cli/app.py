"""One Typer application with all commands of `ecoshare`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

import ecoshare
from ecoshare.cli import profiles, runs, slurm
from ecoshare.cli.agent import agent
from ecoshare.cli.classes import CommandGroup, HelpfulCommand, WordsAfter
from ecoshare.cli.devices import devices
from ecoshare.cli.doctor import doctor
from ecoshare.cli.down import down
from ecoshare.cli.explain import explain
from ecoshare.cli.export import export
from ecoshare.cli.init import init
from ecoshare.cli.logs import logs
from ecoshare.cli.page import page
from ecoshare.cli.profile import profile
from ecoshare.cli.queued_jobs import cancel, hold, priority, release, retry
from ecoshare.cli.restore import restore
from ecoshare.cli.run import run
from ecoshare.cli.schema import schema
from ecoshare.cli.simulate import simulate
from ecoshare.cli.status import status
from ecoshare.cli.submit import submit
from ecoshare.cli.top import top
from ecoshare.cli.tune import tune
from ecoshare.cli.up import up
from ecoshare.cli.wait import wait

app = typer.Typer(
    name="ecoshare",
    cls=CommandGroup,
    help="Share devices between several unmodified PyTorch jobs, and account for the energy.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _common(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(ecoshare.__version__)
        raise typer.Exit


_PANELS = {
    "Run": (run, init, profile, doctor),
    "Look": (status, top, logs, explain, runs.app, export),
    "Queue": (submit, up, down, wait, cancel, retry, hold, release, priority, page),
    "Devices": (devices, tune, restore),
    "More": (simulate, profiles.app, slurm.app, schema),
}
"""Commands in the groups and in the order of `ecoshare --help`: most users need no more than the first ten."""

for _panel, _commands in _PANELS.items():
    for _command in _commands:
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, rich_help_panel=_panel)
        else:
            _class = WordsAfter if _command in (run, submit) else HelpfulCommand
            app.command(cls=_class, rich_help_panel=_panel)(_command)
app.command("dashboard", cls=HelpfulCommand, hidden=True)(page)
app.command(cls=HelpfulCommand, hidden=True)(agent)


def narrow(word: str) -> None:
    """Leave only the command of this name, if there is one: to read the options of all takes 0.1 s."""
    commands = [each for each in app.registered_commands if _is_named(each.name, each.callback, word)]
    groups = [each for each in app.registered_groups if each.typer_instance and each.typer_instance.info.name == word]
    if commands or groups:
        app.registered_commands, app.registered_groups = commands, groups


def _is_named(name: str | None, callback: Callable[..., object] | None, word: str) -> bool:
    return word == (name or getattr(callback, "__name__", ""))
