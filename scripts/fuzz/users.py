"""Files of another user in places that all users share: nothing of this user's is changed, and no command hangs.

Under root the files belong to another user; otherwise they have the same form, but this user's number.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

from scripts.fuzz.commands import judge, nothing_left, started, token_of
from scripts.fuzz.damage import damage_json, dumped, value
from scripts.fuzz.rounds import Lost, Play, Round, main
from tests.runtime.running import job_file, slow_steps

LIMIT_S = 60.0
OTHER = 54_321
"""Number of the other user."""

_CONTENTS = (
    b"",
    b"\0" * 100,
    b"[" * 60_000,
    b'{"pid": 1, "run": "/", "processors": []}',
    b'{"pid": 1e999, "run": "x", "processors": [0]}',
    b'{"pid": -1, "run": "\\u001b[2J\\u001b]0;title\\u0007", "processors": []}',
    b'{"pid": 1, "run": "' + b"x" * 50_000 + b'", "processors": []}',
    b'{"pid": 1, "run": "\\ud800\\n\\nerror: no", "processors": [0]}',
    b'{"pid": 1, "run": "x", "processors": [1e999]}',
    b'{"pid": 1, "run": "x", "processors": {"0": 1}}',
)
"""Names of files that commands read."""

_LOCKS = ("ecoshare-cpu.queue", "ecoshare-cpu.lock", "ecoshare-cpu.0123456789abcdef.run", "ecoshare-cpu..run")
_JOURNALS = ("cpu.json", "GPU-00000000-1111-2222-3333-444444444444.json", "x.json", ".json")
_SHARED = ("ecoshare-run-0123456789abcdef", "ecoshare-run-", "ecoshare-run-0", "ecoshare-run-\n")
_RUNS = ("ecoshare-runs", "ecoshare-runs/latest", "ecoshare-runs/lock")
_QUEUE = ("", "/queue.db", "/socket", "/address", "/token", "/options.json", "/up.log", "/lock", "/runs")
_PROFILES = ("good-0123456789ab.json", "pairs", "tuned", "beside", ".lock")


@dataclass(frozen=True)
class Own:
    """Things of this user, which must stay unchanged.

    Attributes:
        file: A file with content.
        folder: A folder with a file.
    """

    file: Path
    folder: Path

    @classmethod
    def made(cls, base: Path) -> Own:
        """Make the things."""
        own = cls(base / "victim", base / "victims")
        own.file.write_bytes(b"kept\n")
        own.folder.mkdir()
        (own.folder / "lock").write_bytes(b"locked\n")
        return own

    def state(self) -> list[object]:
        """Everything about them that could change."""
        paths = (self.file, self.folder, *sorted(self.folder.iterdir()))
        looks = [(str(path), (found := path.lstat()).st_mode, found.st_uid, found.st_size) for path in paths]
        return [*looks, self.file.read_bytes(), (self.folder / "lock").read_bytes()]


def prepare(_folder: Path) -> Play:
    """Prepare nothing, as rounds share nothing."""
    return _play


def _play(one: Round) -> None:
    work, shared = one.folder / "work", one.folder / "shared"
    for path in (work, shared, shared / "state", shared / "profiles", shared / "tmp"):
        path.mkdir()
        path.chmod(0o1777)
    own = Own.made(one.folder)
    job_file(work, slow_steps("a", 3, 2))
    places = {
        "lock": shared / "state" / one.dice.choice(_LOCKS),
        "journal": shared / "state" / one.dice.choice(_JOURNALS),
        "shared memory": shared / "tmp" / one.dice.choice(_SHARED),
        "run folders": work / one.dice.choice(_RUNS),
        "profiles": shared / "profiles" / one.dice.choice(_PROFILES),
        "queue": shared / "state" / "queues" / f"default{one.dice.choice(_QUEUE)}",
    }
    one.kind = one.dice.choice(list(places))
    with ExitStack() as stack:
        _leave(one, places[one.kind], own, stack)
        before = own.state()
        run = ["run", "jobs.yaml", "--device", "cpu", "--no-report", "--no-wait"]
        commands = [
            run,
            run,
            ["devices"],
            ["restore"],
            ["profiles", "list"],
            ["doctor"],
            ["export", "ecoshare-runs/latest"],
        ]
        queues = [["up", "--detach", "--device", "cpu"], ["submit", "none.py"], ["status"], ["page"], ["down", "--yes"]]
        words = one.dice.choice(queues if one.kind == "queue" else commands)
        one.story.append(f"ecoshare {' '.join(words)}")
        environment = {
            **os.environ,
            "ECOSHARE_STATE": str(shared / "state"),
            "ECOSHARE_PROFILES": str(shared / "profiles"),
            "TMPDIR": str(shared / "tmp"),
        }
        done = started(*words, cwd=work, environment=environment, limit_s=LIMIT_S)
        if words[0] == "up" and done.code == 0:
            judge(started("down", "--yes", cwd=work, environment=environment, limit_s=LIMIT_S))
    if own.state() != before:
        raise Lost("what is this user's was changed", f"{before}\n{own.state()}")
    judge(done)
    latest = work / "ecoshare-runs" / "latest"
    if words[0] == "run" and done.code == 0 and (latest / "environment.json").is_file():
        nothing_left(token_of(latest))


def _leave(one: Round, place: Path, own: Own, stack: ExitStack) -> None:
    """Leave a random thing in a place."""
    dice = one.dice
    ways: dict[str, Callable[[], None]] = {
        "a file": lambda: _write(place, dice.choice(_CONTENTS)),
        "a file with rubbish": lambda: _write(place, dumped(value(dice)).encode(errors="surrogatepass")),
        "a file that is held": lambda: _hold(place, dice.choice([*_CONTENTS, _record(dice)]), stack),
        "a file without read permission": lambda: _write(place, b"", 0),
        "a FIFO": lambda: os.mkfifo(place),
        "a socket": lambda: _bind(place, stack),
        "a link to a file": lambda: place.symlink_to(own.file),
        "a link to a folder": lambda: place.symlink_to(own.folder),
        "a link that leads nowhere": lambda: place.symlink_to(own.folder / "new"),
        "a link to itself": lambda: place.symlink_to(place.name),
        "a link to /dev/zero": lambda: place.symlink_to("/dev/zero"),
        "the same file by another name": lambda: place.hardlink_to(own.file),
        "a folder": place.mkdir,
        "a folder with a link": lambda: _folder(place, own.folder / "lock"),
        "a folder with a FIFO": lambda: _folder(place, None),
    }
    is_record = place.suffix == ".run" and dice.random() < 0.7  # the record of a run that uses the device
    what = "a file that is held" if is_record else dice.choice(list(ways))
    place = Path(os.path.normpath(place))
    place.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(place):
        return
    ways[what]()
    if os.geteuid() == 0 and "by another name" not in what:
        for path in (place, *(place.iterdir() if place.is_dir() and not place.is_symlink() else ())):
            os.chown(path, OTHER, OTHER, follow_symlinks=False)
    one.story.append(f"{place.parent.name}/{place.name} is {what}")


def _record(dice: Random) -> bytes:
    """Damaged record of a run."""
    changed, _ = damage_json(dice, {"pid": 1, "run": "/runs/x", "processors": [0, 1]})
    return dumped(changed).encode(errors="surrogatepass")


def _write(place: Path, content: bytes, mode: int = 0o644) -> None:
    place.write_bytes(content)
    place.chmod(mode)


def _hold(place: Path, content: bytes, stack: ExitStack) -> None:
    _write(place, content)
    file = stack.enter_context(place.open("rb"))
    fcntl.flock(file, fcntl.LOCK_EX)


def _bind(place: Path, stack: ExitStack) -> None:
    """Listening socket; its path may be too long for an address from the root."""
    made = stack.enter_context(socket.socket(socket.AF_UNIX))
    before = Path.cwd()
    os.chdir(place.parent)
    try:
        made.bind(place.name)
    finally:
        os.chdir(before)
    made.listen()


def _folder(place: Path, link: Path | None) -> None:
    place.mkdir()
    for name in ("lock", "latest", "events.jsonl"):
        if link is None:
            os.mkfifo(place / name)
        else:
            (place / name).symlink_to(link)


if __name__ == "__main__":
    main("users", __doc__, prepare)
