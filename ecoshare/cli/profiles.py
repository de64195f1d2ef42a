"""`ecoshare profiles`: lists, shows and removes stored profiles."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ecoshare.base.plural import counted
from ecoshare.cli import completion
from ecoshare.cli.classes import CommandGroup, HelpfulCommand
from ecoshare.cli.options import JsonOption, ProfilesOption
from ecoshare.cli.output import note
from ecoshare.errors import UsageError

if TYPE_CHECKING:
    from ecoshare.knowledge.profile_store import ProfileStore
    from ecoshare.knowledge.stored_profiles import StoredClass

PIPE_WIDTH = 1_000
"""Width (columns) without a terminal: programs and files get whole lines."""

NamesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="CLASS|SCRIPT",
        help="Classes as `list` shows them; or scripts: all of theirs.",
        autocompletion=completion.classes,
    ),
]

app = typer.Typer(
    name="profiles",
    cls=CommandGroup,
    help="List, show or remove profiles of job classes; by default those in the user's data folder.",
    no_args_is_help=True,
)


@app.command("list", cls=HelpfulCommand)
def list_profiles(profiles: ProfilesOption = None, as_json: JsonOption = False) -> None:
    """List the profiles, the newest first.

    A profile holds for jobs of one script, with the same arguments, on one model of device. "error" is that of the mean
    iteration time. "settled" says whether the figures were steady at the end. "iterations" are those of a whole job, as
    learned from completed jobs.
    """
    from ecoshare.knowledge.profile_store import ProfileStore
    from ecoshare.knowledge.profiles_folder import default_folder
    from ecoshare.reporting.tables.lists import described, print_profiles

    store = ProfileStore(profiles or default_folder())
    found = _stored(store)
    if as_json:
        print(json.dumps([described(each, str(store.file(each.job_class))) for each in found], indent=2))
        return
    if not found:
        note(f"no profiles in {store.folder}: `ecoshare run` and `ecoshare profile` make them")
        return
    print_profiles(found, Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH))
    print(f"\nfolder: {store.folder}")


@app.command(cls=HelpfulCommand)
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="CLASS|SCRIPT", help="A class as `list` shows it, or a script.", autocompletion=completion.classes
        ),
    ],
    profiles: ProfilesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show all that a profile says, as `ecoshare profile` does when it has measured one.

    Below it are the iterations of completed jobs of the class, by arguments. JSON has the profile only.
    """
    from ecoshare.knowledge.profile_store import ProfileStore
    from ecoshare.knowledge.profiles_folder import default_folder
    from ecoshare.knowledge.stored_profiles import the_one_named
    from ecoshare.reporting.profile_text import print_profile
    from ecoshare.reporting.tables.lists import print_counts

    found = the_one_named(name, _stored(ProfileStore(profiles or default_folder())))
    if as_json:
        if found.profile is None:
            raise UsageError(f"{name}: it has iteration counts, and no profile", "`list --json` has the counts")
        print(found.profile.model_dump_json(indent=2))
        return
    console = Console(highlight=False)
    if found.profile is not None:
        print_profile(found.profile, console)
    print_counts(found, console)


@app.command(cls=HelpfulCommand)
def rm(names: NamesArgument, profiles: ProfilesOption = None) -> None:
    """Remove profiles, and all else that is stored of their classes. The next run measures them anew.

    Speeds beside other classes and tuned settings are relative to a class alone, so they go with its profile. The
    iterations of completed jobs and the times on single devices go, too. Nothing is removed where a name is wrong.
    """
    from ecoshare.knowledge.profile_store import ProfileStore
    from ecoshare.knowledge.profiles_folder import default_folder
    from ecoshare.knowledge.stored_profiles import forget, named

    store = ProfileStore(profiles or default_folder())
    everything = _stored(store)
    found = {each.job_class: each for name in names for each in named(name, everything)}
    for each in found.values():
        gone = forget(each, store)
        also = [
            counted(count, one, more)
            for count, one, more in (
                (gone.beside, "measurement beside others", "measurements beside others"),
                (gone.tuned, "tuned setting", "tuned settings"),
                (gone.counts, "iteration count", "iteration counts"),
                (gone.times, "time on a device", "times on devices"),
            )
            if count
        ]
        rest = " and ".join(filter(None, (", ".join(also[:-1]), *also[-1:])))
        print(f"removed {gone.job_class} of {gone.script}" + (f", with {rest}" if rest else ""))


def _stored(store: ProfileStore) -> list[StoredClass]:
    """All classes of a folder; notes about files that cannot be used are printed."""
    from ecoshare.knowledge.iteration_store import IterationStore
    from ecoshare.knowledge.stored_profiles import stored

    iterations = IterationStore(store.folder)
    found = stored(store, iterations)
    for line in (*store.notes, *iterations.notes):
        note(line)
    return found
