"""One Typer application with all commands of `ecoshare`."""

from __future__ import annotations

from typing import Annotated

import typer

import ecoshare
from ecoshare.cli import profiles
from ecoshare.cli.classes import CommandGroup, HelpfulCommand, WordsAfter
from ecoshare.cli.devices import devices
from ecoshare.cli.doctor import doctor
from ecoshare.cli.explain import explain
from ecoshare.cli.export import export
from ecoshare.cli.init import init
from ecoshare.cli.profile import profile
from ecoshare.cli.restore import restore
from ecoshare.cli.run import run
from ecoshare.cli.schema import schema
from ecoshare.cli.simulate import simulate
from ecoshare.cli.tune import tune

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


app.command(cls=WordsAfter)(run)
for _command in (profile, init, devices, restore, tune, simulate, schema, doctor, export, explain):
    app.command(cls=HelpfulCommand)(_command)
app.add_typer(profiles.app)
