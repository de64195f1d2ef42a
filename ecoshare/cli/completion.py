"""Shell completion beyond options and files.

Each function answers within a key press: it reads names, and no content of a run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from ecoshare.base.disk import RUNS
from ecoshare.errors import EcoshareError

_HARMLESS = re.compile(r"[\w@%+=:,./-]+")


def policies(incomplete: str) -> list[str]:
    """Names of policies; after a comma, names for the next place of the list."""
    from ecoshare.core.policies import known_names

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in beginning(known_names(), last)]


def objectives(incomplete: str) -> list[str]:
    """Names of objectives."""
    from ecoshare.base.measurement import OBJECTIVES

    return beginning(OBJECTIVES, incomplete)


def devices(incomplete: str) -> list[str]:
    """Names of devices. GPUs are not counted, since that would load their driver."""
    return beginning(("cpu", "cuda", "cuda:0"), incomplete)


def run_devices(incomplete: str) -> list[str]:
    """Names of devices, and words for several."""
    return beginning(("cpu", "cpu/2", "cuda", "cuda:0", "all"), incomplete)


def controls(incomplete: str) -> list[str]:
    """Values of `--control`."""
    return beginning(("auto", "known", "off"), incomplete)


def traces(incomplete: str) -> list[str]:
    """Kinds of traces that can be generated."""
    from ecoshare.simulation.traces.generate import ALL_KINDS

    return beginning(ALL_KINDS, incomplete)


def formats(incomplete: str) -> list[str]:
    """Formats of exports."""
    from ecoshare.reporting.exports import FORMS

    return beginning(FORMS, incomplete)


def runs(incomplete: str) -> list[str]:
    """Run folders in the typed folder, or in the default folder; newest first."""
    folder = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    if folder == Path() and not incomplete.startswith("./"):
        folder = RUNS
    with suppress(OSError):
        found = [each for each in folder.iterdir() if (each / "plan.json").is_file()]
        names = [str(each) for each in sorted(found, key=lambda each: each.name, reverse=True)]
        return beginning(names, incomplete)
    return []


def past_runs(ctx: Any, incomplete: str) -> list[str]:
    """Run folders that can be removed: in the folder that `--runs` or `--queue` names, else as `runs` returns them."""
    from ecoshare.queue.queue_folder import QueueFolder

    with suppress(OSError, EcoshareError):
        folder, queue = ctx.params.get("runs"), ctx.params.get("queue")
        if queue is not None:
            folder = QueueFolder.of(queue).runs
        if folder is None or "/" in incomplete:
            return [each for each in runs(incomplete) if not Path(each).is_symlink()]
        found = (each for each in Path(folder).iterdir() if (each / "plan.json").is_file() and not each.is_symlink())
        return beginning(sorted((each.name for each in found), reverse=True), incomplete)
    return []


def queues(incomplete: str) -> list[str]:
    """Names of this user's queues."""
    from ecoshare.queue.queue_folder import QueueFolder

    with suppress(OSError, EcoshareError):
        folder = QueueFolder.of("default").path.parent
        return beginning(sorted(each.name for each in folder.iterdir() if (each / "queue.db").exists()), incomplete)
    return []


def queued_jobs(ctx: Any, incomplete: str) -> list[str]:
    """Jobs that have not ended of the queue that the command line names."""
    return _jobs_of_queue(ctx, incomplete, "state IS NULL")


def ended_jobs(ctx: Any, incomplete: str) -> list[str]:
    """Jobs that have failed or were cancelled of the queue that the command line names."""
    return _jobs_of_queue(ctx, incomplete, "state IN ('failed', 'cancelled')")


def _jobs_of_queue(ctx: Any, incomplete: str, which: str) -> list[str]:
    import sqlite3

    from ecoshare.queue.queue_folder import DEFAULT_NAME, QueueFolder

    with suppress(OSError, EcoshareError, sqlite3.Error):
        folder = QueueFolder.of(ctx.params.get("queue") or ctx.params.get("name") or DEFAULT_NAME)
        with closing(sqlite3.connect(f"file:{folder.database}?mode=ro", uri=True, timeout=0.2)) as database:
            rows = database.execute(f"SELECT name FROM jobs WHERE {which} ORDER BY number DESC LIMIT 1000")
            return beginning([name for (name,) in rows], incomplete)
    return []


def classes(ctx: Any, incomplete: str) -> list[str]:
    """Classes that have a profile or iteration counts."""
    from ecoshare.knowledge.profiles_folder import ITERATIONS, default_folder

    with suppress(OSError, EcoshareError):
        folder = Path(ctx.params.get("profiles") or default_folder())
        paths = (*folder.glob("[!.]*.json"), *(folder / ITERATIONS).glob("[!.]*.json"))
        return beginning(sorted({path.stem for path in paths}), incomplete)
    return []


def beginning(names: Iterable[Any], incomplete: str) -> list[str]:
    """Names that begin with what was typed.

    A shell puts them on the command line as they are, so a name from a foreign folder must mean nothing to it.
    """
    return [
        name for name in names if isinstance(name, str) and _HARMLESS.fullmatch(name) and name.startswith(incomplete)
    ]
