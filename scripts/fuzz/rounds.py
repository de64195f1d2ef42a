"""Rounds of a driver, each with a seed of its own, so that it can be repeated alone.

A driver is a module with a function that prepares all rounds, and returns the function that plays a round:

    def prepare(folder: Path) -> Play: ...

    if __name__ == "__main__":
        main("job_files", __doc__, prepare)
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ecoshare.base.printable import legible, spelled
from scripts.bench.benchmarking import keep_to

ROOT = Path(__file__).parents[2]


class Lost(Exception):
    """Raised when a promise does not hold.

    Attributes:
        finding: Short words that are the same for the same fault.
        detail: Observation in this round.
    """

    def __init__(self, finding: str, detail: str = "") -> None:
        super().__init__(finding)
        self.finding, self.detail = finding, detail


class TookTooLong(BaseException):
    """Raised when a round goes past its limit. It is no `Exception`, so that nothing catches it on the way."""


@dataclass
class Round:
    """One round.

    Attributes:
        number: Counted from 0.
        dice: Source of all that the round draws.
        folder: An empty folder of its own.
        kind: Kind of the round, for the table; the round sets it.
        story: Actions in order, which are printed if the round is lost.
    """

    number: int
    dice: random.Random
    folder: Path
    kind: str = "none"
    story: list[str] = field(default_factory=list)


Play = Callable[[Round], None]
"""Function that plays a round. A `Lost`, or any other exception, is a loss."""

Prepare = Callable[[Path], Play]
"""Function that prepares all rounds in a folder, and returns the function that plays one."""


@dataclass(frozen=True)
class Loss:
    """Lost round.

    Attributes:
        finding: Fault in words that are the same for the same fault.
        detail: Observation in this round.
    """

    round: int
    kind: str
    finding: str
    detail: str
    story: tuple[str, ...]


@dataclass
class Tally:
    """Result of a driver.

    Attributes:
        tried: Number of rounds by kind.
        wall_s: Time of all rounds.
    """

    driver: str
    seed: int
    tried: Counter[str] = field(default_factory=Counter)
    losses: list[Loss] = field(default_factory=list)
    wall_s: float = 0.0

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return self.tried.total()

    def findings(self) -> list[tuple[str, list[Loss]]]:
        """Losses of each distinct finding, the most frequent first."""
        found: dict[str, list[Loss]] = {}
        for loss in self.losses:
            found.setdefault(loss.finding, []).append(loss)
        return sorted(found.items(), key=lambda each: -len(each[1]))

    def describe(self) -> str:
        """Findings in words, each with a round to repeat; empty if nothing was lost."""
        lines = []
        for finding, losses in self.findings():
            first = losses[0]
            lines.append(f"{len(losses)} x {finding}")
            lines.append(f"    again: python -m scripts.fuzz.{self.driver} --seed {self.seed} --only {first.round}")
            lines += [f"    did: {each}" for each in first.story]
            lines += [f"    {each}" for each in first.detail.splitlines()[-8:]]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        lost = Counter(loss.kind for loss in self.losses)
        kinds = {
            kind: {"tried": tried, "survived": tried - lost[kind], "lost": lost[kind]}
            for kind, tried in sorted(self.tried.items())
        }
        return {
            "schema_version": 1,
            "driver": self.driver,
            "command": f"python -m scripts.fuzz.{self.driver} --rounds {self.rounds} --seed {self.seed}",
            "seed": self.seed,
            "tried": self.rounds,
            "survived": self.rounds - len(self.losses),
            "lost": len(self.losses),
            "wall_s": self.wall_s,
            "kinds": kinds,
            "findings": {finding: len(losses) for finding, losses in self.findings()},
            "losses": [asdict(loss) for loss in self.losses],
        }


def fuzz(
    driver: str, prepare: Prepare, folder: Path, rounds: Sequence[int], seed: int = 0, keep: bool = False
) -> Tally:
    """Play rounds of a driver in a folder.

    Args:
        rounds: Numbers of the rounds.
        keep: Whether the folders of the rounds are kept.
    """
    (common := folder / "common").mkdir()
    play = prepare(common)
    tally = Tally(driver, seed)
    began_s = time.monotonic()
    for number in rounds:
        (own := folder / f"round-{number}").mkdir()
        one = Round(number, random.Random(f"{driver}/{seed}/{number}"), own)
        loss: Lost | None = None
        try:
            play(one)
        except Lost as lost:
            loss = lost
        except (Exception, TookTooLong) as error:
            loss = lost_by(error)
        tally.tried[one.kind] += 1
        if loss is not None:
            tally.losses.append(Loss(number, one.kind, loss.finding, loss.detail, tuple(one.story)))
        if not keep:
            remove(own)
    tally.wall_s = time.monotonic() - began_s
    return tally


def lost_by(error: BaseException) -> Lost:
    """Loss from an exception: its type, and the last place in ecoshare."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if f"{ROOT}/ecoshare/" in each.filename or f"{ROOT}/tuner/" in each.filename]
    last = (own or list(frames))[-1]
    place = f"{_short(last.filename)}:{last.name}"
    said = "".join(traceback.format_exception(error, limit=-6))
    return Lost(f"{type(error).__name__} in {place}", said[-3000:])


def _short(file: str) -> str:
    return file.removeprefix(f"{ROOT}/")


def remove(folder: Path) -> None:
    """Remove a folder with any permissions. The folder that it lies in keeps its own, such as those of /tmp."""

    def retry(_function: object, path: str, _error: object) -> None:
        if Path(path) == folder:  # a process may still write there
            return
        with contextlib.suppress(OSError):
            Path(path).parent.chmod(0o700)
            Path(path).unlink()

    shutil.rmtree(folder, onerror=retry)


@contextlib.contextmanager
def within(limit_s: float, memory_bytes: int = 4 << 30) -> Iterator[None]:
    """Limit the time of a block, and the memory that it adds to this process.

    Raises:
        TookTooLong: The block took longer.
    """

    def over(_number: int, _frame: FrameType | None) -> NoReturn:
        raise TookTooLong(f"not over within {limit_s} s")

    began_s = time.monotonic()
    most = resource.getrlimit(resource.RLIMIT_AS)
    size_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    handler = signal.signal(signal.SIGALRM, over)
    before_s, repeated_s = signal.setitimer(signal.ITIMER_REAL, limit_s)  # the timer of pytest-timeout, within a test
    resource.setrlimit(resource.RLIMIT_AS, (size_bytes + memory_bytes, most[1]))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        resource.setrlimit(resource.RLIMIT_AS, most)
        signal.signal(signal.SIGALRM, handler)
        if before_s:
            left_s = before_s - (time.monotonic() - began_s)
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left_s), repeated_s)


def main(driver: str, about: str | None, prepare: Prepare) -> NoReturn:
    """Command line of a driver."""
    parser = argparse.ArgumentParser(
        prog=f"python -m scripts.fuzz.{driver}", description=(about or "").partition("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=100, metavar="N", help="how many rounds (100)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the same seed draws the same rounds (0)")
    parser.add_argument("--only", type=int, metavar="ROUND", help="one round alone; its folder is kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result as JSON")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix=f"ecoshare-fuzz-{driver}-"))
    keep_to(folder)
    alone = given.only is not None
    tally = fuzz(driver, prepare, folder, [given.only] if alone else range(given.rounds), given.seed, keep=alone)
    show(tally)
    if alone:
        print(f"folder: {folder}")
    else:
        remove(folder)
    if given.json is not None:
        given.json.write_text(json.dumps(tally.as_dict(), indent=1) + "\n")
    sys.exit(1 if tally.losses else 0)


def show(tally: Tally) -> None:
    """Print the table of tried, survived and lost rounds, and the cause of each loss."""
    lost = Counter(loss.kind for loss in tally.losses)
    table = Table("tried", title=f"{tally.driver}, seed {tally.seed}")
    for name in ("rounds", "survived", "lost"):
        table.add_column(name, justify="right")
    for kind, tried in sorted(tally.tried.items()):
        table.add_row(escape(kind), f"{tried:,}", f"{tried - lost[kind]:,}", f"{lost[kind]:,}")
    table.add_section()
    total = len(tally.losses)
    table.add_row("all", f"{tally.rounds:,}", f"{tally.rounds - total:,}", f"{total:,}")
    console = Console(highlight=False)
    console.print(table)
    for loss in tally.losses:
        print(spelled(f"lost: seed {tally.seed} round {loss.round} ({loss.kind}): {loss.finding}"))
    if words := tally.describe():
        print(legible(words))
    print(f"{tally.rounds} rounds in {tally.wall_s:.1f} s: {tally.wall_s / max(1, tally.rounds):.3f} s each")
