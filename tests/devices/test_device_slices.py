"""Runs that agree on slices over real sockets, in real processes: deaths, hangs, users, and hostile lines."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from ecoshare.core import slices as rules
from ecoshare.devices import device_slices
from ecoshare.devices.device_slices import VERSION, DeviceSlices, ListedMember, TablePaths, keys_of, members_now
from tests.warm import wait_for


@pytest.fixture
def paths() -> Iterator[TablePaths]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:  # other users may not enter the folder of the tests
        Path(name).chmod(0o1777)
        yield TablePaths(Path(name))


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short slices in this process."""
    monkeypatch.setattr(rules, "SLICE_S", 0.1)


@dataclass
class Sharer:
    """Run in a thread of this process, which drains at once.

    Attributes:
        turns: Begin and end of its slices (s); the end of the last is missing while it runs.
    """

    paths: TablePaths
    devices: tuple[str, ...] = ("gpu",)
    turns: list[list[float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.slices = DeviceSlices(self.devices, self._begin, self._end, "a run", self.paths)
        self.slices.open()
        self.slices.want(True)

    def _begin(self) -> None:
        self.turns.append([time.monotonic()])

    def _end(self) -> None:
        self.turns[-1].append(time.monotonic())
        self.slices.ended()

    @property
    def runs(self) -> bool:
        return bool(self.turns) and len(self.turns[-1]) == 1

    def held_s(self) -> float:
        return sum((turn[1] if len(turn) > 1 else time.monotonic()) - turn[0] for turn in self.turns)


@pytest.fixture
def shares(paths: TablePaths) -> Iterator[Callable[..., Sharer]]:
    with contextlib.ExitStack() as undo:

        def make(*devices: str) -> Sharer:
            made = Sharer(paths, devices or ("gpu",))
            undo.callback(made.slices.close)
            return made

        yield make


def test_one_run_begins_at_once_and_is_never_told_to_end(shares: Callable[..., Sharer]) -> None:
    began_s = time.monotonic()
    one = shares()
    wait_for(lambda: one.runs)
    assert time.monotonic() - began_s < 2.0
    time.sleep(0.5)
    assert len(one.turns) == 1 and one.runs and not one.slices.others and len(members_now(one.paths)) == 1


def test_two_take_turns_and_never_run_at_once(shares: Callable[..., Sharer]) -> None:
    one, two = shares(), shares()
    wait_for(lambda: len(one.turns) > 5 and len(two.turns) > 5)
    turns = sorted([*one.turns[:5], *two.turns[:5]])
    assert all(before[1] <= after[0] for before, after in pairwise(turns))
    wait_for(lambda: len(one.slices.others) == len(two.slices.others) == 1)
    (other,) = one.slices.others
    assert other.user == os.getuid() and other.pid == os.getpid() and other.run == "a run"
    assert re.fullmatch(rf"a run \(.+'s process {other.pid}\): .+, has had \d+ % of .+ m?s", str(other))


def test_a_member_in_words_stays_on_its_line() -> None:
    """A keeper may list names that no run has; and one of an older version does not tell since when a run is there."""
    other = ListedMember(
        name="1", user=2**31, pid=7, run="a\x1b[2J\nb", devices=["gpu"], state="waits", since_s=1.0, used_s=90.0
    )
    assert str(other) == r"a\x1b[2J\nb (user 2147483648's process 7): waits for 1 s, has had 1 min 30 s"


def test_on_different_devices_both_run(shares: Callable[..., Sharer]) -> None:
    one, two = shares("a"), shares("b")
    wait_for(lambda: one.runs and two.runs)
    time.sleep(0.3)
    assert len(one.turns) == len(two.turns) == 1 and not one.slices.others


def test_one_that_wants_nothing_more_leaves_the_device_to_the_other(shares: Callable[..., Sharer]) -> None:
    one, two = shares(), shares()
    wait_for(lambda: len(two.turns) > 1)
    one.slices.want(False)
    wait_for(lambda: two.runs and not one.runs)
    count = len(one.turns)
    time.sleep(0.5)
    assert len(one.turns) == count and two.runs
    one.slices.want(True)
    wait_for(lambda: len(one.turns) > count)


def test_the_other_goes_on_when_the_keeper_leaves(paths: TablePaths, shares: Callable[..., Sharer]) -> None:
    one, two = Sharer(paths), shares()
    wait_for(lambda: len(two.turns) > 1)
    one.slices.close()
    wait_for(lambda: two.runs)
    count = len(two.turns)
    time.sleep(0.5)
    assert len(two.turns) <= count + 1, "nobody else is there"
    three = shares()
    wait_for(lambda: len(three.turns) > 1)


@dataclass
class Process:
    """`slicing.py`, with what it has printed."""

    process: subprocess.Popen[str]

    def __post_init__(self) -> None:
        self.lines: list[tuple[str, float]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def end(self) -> None:
        self.process.kill()
        with self.process:
            self._reader.join()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            what, _, at = line.rpartition(" ")
            self.lines.append((what, float(at)))

    def count(self, what: str) -> int:
        return sum(1 for each, _ in self.lines if each == what)


@pytest.fixture
def begin(paths: TablePaths) -> Iterator[Callable[..., Process]]:
    made: list[Process] = []

    def start(user: int | None = None, slice_s: float = 2.0) -> Process:
        words = [sys.executable, "-m", "tests.devices.slicing", str(paths.folder), str(user or os.getuid())]
        words += [str(slice_s), "gpu"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
        made.append(Process(process))
        return made[-1]

    yield start
    for each in made:
        each.end()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.nightly)])
def test_a_keeper_that_dies_or_hangs_costs_the_others_a_slice(
    begin: Callable[..., Process], how: signal.Signals
) -> None:
    keeper = begin()
    wait_for(lambda: keeper.count("begin"))
    others = [begin(), begin()]
    wait_for(lambda: all(each.count("begin") for each in others), 30.0)
    os.kill(keeper.process.pid, how)
    at_s = time.monotonic()
    wait_for(lambda: all(any(at > at_s and what == "begin" for what, at in each.lines) for each in others), 30.0)
    longest_s = max(next(at for what, at in each.lines if at > at_s and what == "begin") - at_s for each in others)
    assert longest_s < 3 * (2.0 + 3.0), "three slices, each with the time to end it"
    if how is signal.SIGSTOP:
        os.kill(keeper.process.pid, signal.SIGCONT)
        count = keeper.count("begin")
        wait_for(lambda: keeper.count("begin") > count, 30.0)


@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0, reason="other users can only be had by root")
def test_users_share_and_then_their_runs(begin: Callable[..., Process], paths: TablePaths) -> None:
    others = [begin(user=65534) for _ in range(2)]
    own = begin()
    wait_for(lambda: own.count("begin") >= 4 and all(each.count("begin") >= 2 for each in others), 60.0)
    assert own.count("begin") >= sum(each.count("begin") for each in others) - 2


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_three_hundred_deaths_and_hangs_stop_nobody_else(begin: Callable[..., Process]) -> None:
    """Members are killed, stopped, woken and begun at random. One that lives has a slice within seconds, always."""
    draw, steady = random.Random(0), [begin(slice_s=0.2) for _ in range(2)]
    others: list[tuple[Process, bool]] = []
    for _ in range(300):
        time.sleep(draw.uniform(0.0, 0.6))
        kind = draw.random()
        if len(others) < 3 and kind < 0.5:
            others.append((begin(slice_s=0.2), False))
        elif others:
            place = draw.randrange(len(others))
            process, is_stopped = others.pop(place)
            if kind < 0.75 or is_stopped:
                if is_stopped and kind < 0.4:
                    os.kill(process.process.pid, signal.SIGCONT)
                    others.append((process, False))
                else:
                    process.end()
            else:
                os.kill(process.process.pid, signal.SIGSTOP)
                others.append((process, True))
    for each in steady:
        begins = [at_s for what, at_s in each.lines if what == "begin"]
        assert len(begins) > 50
        assert max(after - before for before, after in pairwise(begins)) < 3 * (2.0 + rules.ENDS_WITHIN_S)


def messages(draw: random.Random) -> bytes:
    """Something that no run says, or says at another time."""
    hello = {"say": "hello", "version": VERSION, "devices": ["gpu"], "run": "x", "wants": True, "runs": False}
    kind = draw.randrange(8)
    if kind == 0:
        return draw.randbytes(draw.randrange(1, 2000)) + b"\n"
    if kind == 1:
        return b"x" * draw.choice([100, 20_000, 200_000])
    if kind == 2:
        hello[draw.choice(list(hello))] = draw.choice([None, -1, 1e400, "y" * 5000, ["z"] * 500, {}, True, 10**30])
    elif kind == 3:
        hello["version"] = draw.randrange(1000)
    elif kind == 4:
        hello = {"say": draw.choice(["wants", "took", "ended", "members", "begin"]), "wants": draw.random() < 0.5}
    elif kind == 5:
        return json.dumps(hello).encode() * 3 + b"\n"
    elif kind == 6:
        hello["run"] = "\x1b[31m\n" + "r" * draw.randrange(600)
    return json.dumps(hello).encode() + b"\n"


def attack(path: Path, count: int, seed: int) -> None:
    """Send random messages over lines that come and go."""
    draw, sent = random.Random(seed), 0
    while sent < count:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as line:
            line.settimeout(0.2)
            line.connect(str(path))
            if draw.random() < 0.5:
                line.sendall(b'{"say":"hello","version":1,"devices":["gpu"],"run":"","wants":false,"runs":false}\n')
            for _ in range(draw.randrange(1, 8)):
                sent += 1
                line.sendall(messages(draw))
        sent += 1


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_hostile_lines_cost_nothing_but_slices(paths: TablePaths, shares: Callable[..., Sharer], count: int) -> None:
    one, two = shares(), shares()
    wait_for(lambda: len(two.turns) > 1)
    number = paths.kept()[0]
    attack(paths.socket(number), count, 0)
    turns = len(one.turns), len(two.turns)
    wait_for(lambda: len(one.turns) > turns[0] + 1 and len(two.turns) > turns[1] + 1, 30.0)
    assert not one.slices.fault and not two.slices.fault
    listed = members_now(paths)
    assert len(listed) >= 2 and all(each.run.isprintable() for each in listed)


def test_a_keeper_that_answers_nonsense_is_left(paths: TablePaths, shares: Callable[..., Sharer]) -> None:
    """Another user may keep a table and say what it likes."""
    with paths.lock(5).open("w") as keeping, socket.socket(socket.AF_UNIX) as hostile:
        fcntl.flock(keeping, fcntl.LOCK_EX)
        hostile.bind(str(paths.socket(5)))
        hostile.listen()

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    line, _ = hostile.accept()
                    with line:
                        line.sendall(b'{"say":"members","you":"x","members":[{"pid":-5}]}\n' + b"\xff" * 100 + b"\n")

        answers = threading.Thread(target=answer)
        answers.start()
        one, two = shares(), shares()
        wait_for(lambda: len(one.turns) > 1 and len(two.turns) > 1, 30.0)
        assert paths.kept()[0] == 6 and not one.slices.fault
        hostile.shutdown(socket.SHUT_RDWR)
        answers.join()


def test_a_lock_of_another_program_on_the_table_stops_nobody(paths: TablePaths, shares: Callable[..., Sharer]) -> None:
    with paths.lock(0).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        one, two = shares(), shares()
        wait_for(lambda: len(one.turns) > 1 and len(two.turns) > 1, 60.0)
        assert not one.slices.fault and not two.slices.fault


def test_one_too_many_runs_without_turns(shares: Callable[..., Sharer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_slices, "_MOST_OF_A_USER", 2)
    one, two = shares(), shares()
    wait_for(lambda: len(one.turns) > 1 and len(two.turns) > 1)
    all_three = [one, two, shares()]
    wait_for(lambda: any(each.slices.fault for each in all_three))
    (alone,) = [each for each in all_three if each.slices.fault]
    wait_for(lambda: alone.runs)
    assert alone.slices.fault == "too many runs take turns already" and not alone.slices.others
    others = [each for each in all_three if each is not alone]
    turns = [len(each.turns) for each in others]
    wait_for(lambda: all(len(each.turns) > before + 2 for each, before in zip(others, turns, strict=True)))


def test_processors_in_a_row_have_one_key() -> None:
    assert keys_of([3, 0, 1, 2, 8, 9, 11]) == ("processors:0-3", "processors:8-9", "processors:11-11")
    assert len(device_slices._each(keys_of(range(192)))) == 192
    assert not device_slices._each(["processors:0-3"]) & device_slices._each(["processors:4-7"])
    assert device_slices._each(["processors:0-3", "GPU-1"]) & device_slices._each(["processors:3-7"])


def test_one_that_can_make_no_table_runs_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    one = Sharer(TablePaths(tmp_path / "file" / "below"))
    wait_for(lambda: one.runs)
    assert "Not a directory" in one.slices.fault
    one.slices.close()
