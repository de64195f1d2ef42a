"""Growth of the process that serves a queue while real jobs come and go: its memory and its open files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ecoshare.api.queue_client import Queue
from scripts.bench.benchmarking import Figure, median, say
from tests.queue.queues import served

_AT_ONCE = 8
"""Jobs that are submitted together, and must end before the next ones are."""

_LOOKS = 60
"""Number of looks at the process."""

SMALL = "import sys\nprint('done', sys.argv[1])\n"


@dataclass(frozen=True, slots=True)
class Look:
    """The process at one moment.

    Attributes:
        at_s: Time (s) since the queue was opened.
        jobs: Number of jobs that have ended.
        rss_bytes: Resident memory.
        files: Number of open files.
    """

    at_s: float
    jobs: int
    rss_bytes: int
    files: int


def growth(folder: Path, name: str, lasts_s: float, lanes: tuple[str, ...]) -> list[Figure]:
    """Submit small jobs for some time, and compare the end with the time after the first tenth.

    Args:
        folder: Empty folder.
        name: Name of the queue that `served` opens.
        lasts_s: Time (s).
        lanes: Options of the queue.
    """
    (folder / "small.py").write_text(SMALL)
    with served(folder, *lanes, cold=True) as up:
        Queue(name).wait(*Queue(name).submit([folder / "small.py"], ["first"]).jobs)  # all is loaded
        looks = list(_looks(up.process.pid, Queue(name), folder / "small.py", lasts_s))
        Queue(name).end("now")
    early = [each for each in looks if 0.1 * lasts_s <= each.at_s < 0.2 * lasts_s] or looks[:1]
    late = [each for each in looks if each.at_s >= 0.9 * lasts_s] or looks[-1:]
    before, after = (median([each.rss_bytes for each in some]) for some in (early, late))
    return [
        Figure("time with real jobs", lasts_s / 60.0, "min"),
        Figure("real jobs", looks[-1].jobs, ""),
        Figure("memory after the first tenth", before / 1e6, "MB"),
        Figure("memory at the end / after the first tenth", after / before, "", "<= 1.2"),
        Figure(
            "open files at the end - after the first tenth",
            median([each.files for each in late]) - median([each.files for each in early]),
            "",
            "<= 0",
        ),
    ]


def _looks(pid: int, queue: Queue, script: Path, lasts_s: float) -> Iterator[Look]:
    began_s, done, number = time.monotonic(), 0, 0
    while (at_s := time.monotonic() - began_s) < lasts_s:
        names = [name for _ in range(_AT_ONCE) for name in queue.submit([script], [str(done)]).jobs]
        queue.wait(*names)
        done += len(names)
        if at_s >= number * lasts_s / _LOOKS:
            number += 1
            yield (look := Look(at_s, done, _rss_bytes(pid), len(list(Path(f"/proc/{pid}/fd").iterdir()))))
            if number % 6 == 1:
                say(f"{look.at_s:.0f} s: {look.jobs} jobs, {look.rss_bytes / 1e6:.0f} MB, {look.files} open files")


def _rss_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
