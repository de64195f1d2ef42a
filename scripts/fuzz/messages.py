"""Damaged lines between a run and its agents, and parts of files with hostile paths.

A damaged line is refused with a reason, or it is a message. A part is written below the folders of jobs and nodes, or
refused, whatever links and other files lie there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from ecoshare.cluster.agent_calls import FilePart, read
from ecoshare.cluster.shipment import MOST_BYTES, write_part
from scripts.fuzz.damage import damage_bytes, damage_json, dumped
from scripts.fuzz.rounds import Lost, Play, Round, main, within
from tests.cluster.test_agent_calls import answers, lines_of, sent

LIMIT_S = 8.0

_NAMES = (
    "jobs",
    "nodes",
    "a",
    "link",
    "pipe",
    "file",
    "..",
    ".",
    "",
    "/",
    "x" * 300,
    "\0",
    "\ud800",
    "é",
    "a\nb",
    "~",
    "plan.json",
)
_OFFSETS = (0, 0, 0, 1, 4, -1, MOST_BYTES, 1 << 62, 10**30)
_DATA = ("", "cw==", "c3VycHJpc2U=", "cw", "!", "\0", "é", "c" * 400)


def prepare(folder: Path) -> Play:
    """A line of each kind."""
    lines = lines_of(sent(folder), answers())

    def play(one: Round) -> None:
        with within(LIMIT_S):
            if one.dice.random() < 0.4:
                _part(one)
            else:
                _line(one, one.dice.choice(lines))

    return play


def _line(one: Round, line: bytes) -> None:
    if one.dice.random() < 0.5:
        one.kind = "values of a line"
        changed, how = damage_json(one.dice, json.loads(line))
        line = dumped(changed).encode("utf-8", "surrogatepass") + b"\n"
    else:
        one.kind = "bytes of a line"
        line, how = damage_bytes(one.dice, line)
    one.story.append(f"{line[:40]!r}: {how}")
    try:
        read(line)
    except ValueError as error:
        if not str(error):
            raise Lost("a line is refused without a reason") from error


def _part(one: Round) -> None:
    """A part of a file for a run folder in which a job has put links and pipes."""
    one.kind = "a part of a file"
    run, outside = one.folder / "run", one.folder / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    job = run / "jobs" / "a"
    job.mkdir(parents=True)
    (run / "plan.json").write_text("{}")
    for link, to in ((job / "link", outside), (run / "nodes", outside), (job / "file", outside / "file")):
        link.symlink_to(to)
    os.mkfifo(job / "pipe")
    depth = one.dice.choice([0, 1, 2, 3, 3, 3, 4, 60])
    names = one.dice.choices(_NAMES, k=depth)
    if depth and one.dice.random() < 0.8:
        names[0] = "jobs"
    path = one.dice.choice(["", "", "", "/", f"{outside}/", "./"]) + "/".join(names)
    part = FilePart(path, one.dice.choice(_OFFSETS), one.dice.choice(_DATA))
    one.story.append(repr(part))
    try:
        write_part(run, part)
    except (ValueError, OSError):
        pass
    else:
        if not (run / path).is_file():
            raise Lost("a part that was taken is not there")
    found = {each.name: each.read_text() for each in outside.iterdir()}
    if found != {"file": "mine"} or (run / "plan.json").read_text() != "{}":
        raise Lost("something is written outside of the folders of jobs and nodes", str(found))
    if {each.name for each in one.folder.iterdir()} != {"run", "outside"}:
        raise Lost("something is written beside the run folder")


if __name__ == "__main__":
    main("messages", __doc__, prepare)
