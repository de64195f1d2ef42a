"""Turns that are cut inside an iteration."""

from __future__ import annotations

import functools
import os
import random
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from importlib import machinery
from pathlib import Path
from types import FrameType

import pytest

from ecoshare.lane import cuts
from ecoshare.lane.device_sync import spans_processes
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.tables.table_layout import AT_ONCE, NO_SLOT, CutState, SlotState
from ecoshare.lane.turn import LaneTurn
from tests.lane.cutting import EagerTable, competitor, cutting
from tests.lane.served_lane import ServedLane
from tests.runtime.running import copy_of_scripts, settled
from tests.scripts.cases import CASES, Case
from tests.warm import wait_for


@pytest.fixture
def hears() -> Iterator[list[bool]]:
    """Whether the place was safe, at each signal to this process."""
    heard: list[bool] = []

    def hear(_number: int, frame: FrameType | None) -> None:
        heard.append(cuts.is_safe(frame))

    before = signal.getsignal(cuts.CUT)
    assert cuts.listen(hear)
    yield heard
    signal.signal(cuts.CUT, before)


def test_code_of_a_script_is_safe(hears: list[bool]) -> None:
    signal.raise_signal(cuts.CUT)
    assert hears == [True]


def test_code_of_ecoshare_is_not_safe(hears: list[bool], tmp_path: Path) -> None:
    """Whatever it calls at that moment."""
    table = LaneTable.create(tmp_path / "lane")
    table.seat(0)
    LaneTurn(table, 0).take()
    table.seat(1)
    turn = LaneTurn(table, 0)
    table.slots[1].seat = SlotState.WAITING
    with table.locked():
        table.refresh()
        table.header.quantum_s = 60.0
    table.slots[0].rank = 1  # the other job is more urgent
    table.header.only = 0  # and may not have the turn all the same
    turn.offer(lambda: signal.raise_signal(cuts.CUT))
    assert hears == [False]


class Handler:
    """Signal handler that is an object."""

    def __call__(self, *_: object) -> None:
        signal.raise_signal(cuts.CUT)


@pytest.mark.parametrize("handler", [lambda *_: signal.raise_signal(cuts.CUT), functools.partial(Handler())])
def test_a_handler_of_the_script_is_not_safe(hears: list[bool], handler: Callable[..., None]) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert hears == [False]


def test_a_wait_for_another_thread_or_process_is_not_safe(hears: list[bool]) -> None:
    later = threading.Timer(0.05, cuts.tell, (os.getpid(),))
    later.start()
    subprocess.run([sys.executable, "-c", "import time; time.sleep(0.2)"], capture_output=True, check=True)
    assert hears == [False]


def test_a_signal_amid_the_import_of_torch_distributed_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that raised inside of torch aborted the process."""
    half = types.ModuleType("torch.distributed")
    half.__spec__ = machinery.ModuleSpec("torch.distributed", None)
    half.__spec__._initializing = True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.distributed", half)
    assert not spans_processes()


def test_code_of_the_script_below_a_hook_is_safe(hears: list[bool]) -> None:
    call: dict[str, Callable[..., None]] = {"__name__": "ecoshare.lane.hooks"}  # type: ignore[dict-item]
    exec("def call(function): function()", call)
    call["call"](lambda: signal.raise_signal(cuts.CUT))
    cuts.passes_on(call["call"])
    call["call"](lambda: signal.raise_signal(cuts.CUT))
    assert hears == [False, True]


def test_a_script_that_hears_the_signal_keeps_it() -> None:
    before = signal.signal(cuts.CUT, lambda *_: None)
    try:
        assert not cuts.listen(lambda *_: None)
    finally:
        signal.signal(cuts.CUT, before)


def test_a_process_without_a_handler_ignores_the_signal() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        cuts.tell(other.pid)
        other.communicate(b"\n")
        assert other.returncode == 0
    cuts.tell(other.pid)  # gone


@pytest.fixture
def table(tmp_path: Path) -> LaneTable:
    """Lane at 10 s: the job of slot 0 has had the turn since 9 s, and that of slot 1 has waited since then."""
    table = LaneTable.create(tmp_path / "lane", clock_s=lambda: 10.0)
    for slot in (0, 1):
        table.seat(slot)
    holder, waits = table.slots[0], table.slots[1]
    holder.seat, holder.since_s, holder.pid, holder.cut = SlotState.HOLDING, 9.0, 12345, CutState.READY
    table.header.holder = 0
    waits.seat, waits.since_s = SlotState.WAITING, 9.0
    with table.locked():
        table.refresh()
    return table


def test_the_holder_is_asked_once_and_told_again(table: LaneTable) -> None:
    assert table.ask_cut(1) == (0.0, 12345)
    assert table.slots[0].cut == CutState.ASKED
    table.slots[0].cut_asked_s = 9.5
    assert table.ask_cut(1) == (0.5, 12345), "the time for which it has been asked"


def test_no_holder_is_asked_that_cannot_be_cut(table: LaneTable) -> None:
    table.slots[0].cut = CutState.NEVER
    assert table.ask_cut(1) == (0.0, 0)
    table.slots[0].cut, table.slots[0].seat, table.header.handed_s = CutState.READY, SlotState.WAITING, 9.99
    assert table.ask_cut(1) == (0.0, 0), "it was granted the turn, and does not run yet"
    table.header.handed_s = 9.9
    assert table.ask_cut(1) == (0.0, 12345), "it does not begin: an exception may have ended its wait"
    table.slots[0].seat, table.slots[0].stop = SlotState.HOLDING, 2
    assert table.ask_cut(1) == (0.0, 0), "it was asked to end, and may be saving"
    table.slots[0].stop, table.header.holder = 0, NO_SLOT
    assert table.ask_cut(1) == (0.0, 0)


def test_no_holder_is_asked_before_a_boundary_that_is_expected_in_time(table: LaneTable) -> None:
    holder = table.slots[0]
    holder.last_s, holder.longest_iteration_s = 9.9, 0.2
    assert table.ask_cut(1) == (0.0, 12345), "the job has waited for longer than the bound"
    holder.cut, table.slots[1].since_s = CutState.READY, 9.8
    assert table.ask_cut(1) == (0.0, 0)
    holder.last_s, holder.waited_s = 9.0, 0.9
    assert table.ask_cut(1) == (0.0, 0), "the iteration has waited for as long"
    holder.waited_s = 0.0
    assert table.ask_cut(1)[1], "the boundary is overdue"


def test_no_turn_is_cut_without_memory_for_two_iterations(table: LaneTable) -> None:
    assert table.cut_at_s(1, 10.0) <= 10.0
    table.set_caching(is_kept=False)
    assert table.ask_cut(1) == (0.0, 0)
    table.slots[1].cut, table.slots[1].handovers = CutState.INSIDE, 1
    assert not table.caches_are_emptied, "the job keeps an iteration"
    table.grant(1)
    table.slots[0].seat, table.slots[1].seat = SlotState.WAITING, SlotState.HOLDING
    assert table.caches_are_emptied


def test_the_turn_of_a_holder_that_sleeps_is_taken_once_it_was_asked(table: LaneTable) -> None:
    holder = table.slots[0]
    assert not table.take_over(1, 12345), "it was not asked"
    table.ask_cut(1)
    assert not table.take_over(1, 12346), "another process has the turn by now"
    holder.stop = 1
    assert not table.take_over(1, 12345), "it was asked to end, and may be saving"
    holder.stop, holder.balance_s, holder.handovers = 0, -9.0, 1
    assert table.take_over(1, 12345)
    assert (holder.seat, holder.cut, holder.held_s, holder.inside_s) == (SlotState.AWAY, CutState.INSIDE, 1.0, 1.0)
    assert table.header.holder == 1 and not table.caches_are_emptied, "it keeps the memory of its iteration"


def test_a_turn_that_is_taken_just_before_its_holder_offers_it_is_asked_for_again(tmp_path: Path) -> None:
    """Another thread of the script may come to a boundary. A turn that was handed over twice would have two holders."""
    table = EagerTable.create(tmp_path / "lane")
    for slot in (0, 1):
        table.seat(slot)
    first, second = LaneTurn(table, 0, may_cut=lambda: True), LaneTurn(EagerTable(table.path), 1)
    first.take()
    seen: list[bool] = []

    def have_a_turn() -> None:
        second.take()
        wait_for(lambda: table.slots[0].seat == SlotState.WAITING)
        seen.append(first.holding)
        second.leave()

    thread = threading.Thread(target=have_a_turn)
    thread.start()
    wait_for(lambda: table.slots[1].seat == SlotState.WAITING and table.slots[0].cut == CutState.ASKED)
    first.offer(lambda: seen.append(table.take_over(1, os.getpid())))
    thread.join()
    assert seen == [True, False] and first.holding and not first.slot.is_taken
    assert table.header.holder == 0 and table.slots[0].cut == CutState.READY


def test_a_job_that_was_cut_is_parked_at_its_boundary(table: LaneTable) -> None:
    table.slots[1].cut = CutState.INSIDE
    table.park(1)
    assert table.admits(1)
    table.slots[1].cut = CutState.READY
    assert not table.admits(1)


def test_a_closed_lane_has_no_holder_and_its_waits_are_no_waits_for_its_jobs(table: LaneTable) -> None:
    table.close_turns(True)
    assert table.header.waiting_rank == AT_ONCE, "the holder hands over at its next boundary"
    assert table.choose(10.0) is None and table.wants_turn
    table.grant(None)
    table.slots[0].seat = SlotState.AWAY
    table.slots[1].parked = 1
    assert not table.wants_turn, "the only job that waits is parked"
    table.slots[1].parked = 0
    table.close_turns(False)
    assert table.header.holder == 1 and table.slots[1].since_s == 10.0 and table.slots[1].waited_s == 1.0


def test_a_job_that_was_asked_to_end_amid_an_iteration_has_a_turn_in_a_closed_lane(table: LaneTable) -> None:
    """It may be writing a checkpoint."""
    table.close_turns(True)
    table.grant(None)
    table.slots[0].seat = SlotState.AWAY
    table.let_save(1)
    assert table.header.holder == NO_SLOT
    table.slots[1].stop, table.slots[1].cut = 1, CutState.INSIDE
    table.let_save(1)
    assert table.header.holder == 1


def test_a_lane_that_is_closed_asks_its_holder_for_a_cut(table: LaneTable) -> None:
    table.close_turns(True)
    assert table.ask_cut_to_close(9.99) == 0, "a boundary may come within 50 ms"
    assert table.ask_cut_to_close(9.9) == 12345 and table.slots[0].cut == CutState.ASKED


def test_a_parked_job_asks_for_nothing(table: LaneTable) -> None:
    table.slots[1].parked = 1
    assert table.ask_cut(1) == (0.0, 0)


@pytest.fixture(scope="module")
def lane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLane]:
    lane = ServedLane(tmp_path_factory.mktemp("lane"))
    yield lane
    lane.close()


def cut_often(lane: ServedLane, case: Case, folder: Path, name: str, seed: int = 0) -> int:
    """Number of cuts while a script ran, which did what it does alone."""
    scripts = copy_of_scripts(folder / name)
    with cutting(lane, seed, longest_s=0.002) as found:
        lane.start(name, scripts / case.script, *case.args, cwd=scripts, fused=False)
        assert lane.ended(name).exit_code == case.exit_code
    assert lane.printed(name) == settled(scripts / case.script, case.args, scripts)
    return found.count


OFTEN = [case for case in CASES if case.name in ("language_model", "never_steps", "gan", "lbfgs", "checkpointed")]
APART = (*(case.name for case in OFTEN), "env_threads")  # the last one prints a variable of its environment
OTHERS = [each for each in CASES if each.repeats and each.exit_code == 0 and each.iterations and each.name not in APART]


@pytest.mark.slow
@pytest.mark.parametrize("case", OFTEN, ids=lambda case: case.name)
def test_a_script_that_is_cut_at_random_moments_does_what_it_does_alone(
    lane: ServedLane, case: Case, tmp_path: Path
) -> None:
    assert cut_often(lane, case, tmp_path, case.name) > 0


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", [*OFTEN, *OTHERS], ids=lambda case: case.name)
def test_so_it_does_after_a_thousand_cuts(lane: ServedLane, case: Case, tmp_path: Path) -> None:
    """Or as many as fit into a minute: compiled functions are not cut, so their scripts have few cuts in each run."""
    count = runs = 0
    until_s = time.monotonic() + 60.0
    while count < 1000 and time.monotonic() < until_s:
        runs += 1
        count += cut_often(lane, case, tmp_path, f"{case.name}-{runs}", seed=runs)


WORDS = """
import queue, sys, threading, time
total, over = 0, queue.Queue()
for place in range(int(sys.argv[1])):
    if int(sys.argv[1]) > 1000 and place % 10 == 9:  # the turn is taken in this wait
        threading.Thread(target=lambda: (time.sleep(0.07), over.put(place)), daemon=True).start()
        over.get()
    for each in range(100_000):
        total = (total * 31 + each) % 1_000_003
    print(place, total, flush=True)
"""


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_deaths_and_stops_amid_cuts_lose_no_other_job(tmp_path: Path) -> None:
    """Jobs without iterations cut each other's turns all the time, while others are killed, stopped and interrupted."""
    script, draw = tmp_path / "words.py", random.Random(0)
    script.write_text(WORDS)
    alone = subprocess.run([sys.executable, script, "40"], capture_output=True, check=True).stdout
    lane = ServedLane(tmp_path)
    lane.hand_over_always()
    try:
        for turn in range(500):
            stays, goes = f"stays{turn}", f"goes{turn}"
            lane.start(stays, script, "40", fused=False)
            launch = lane.start(goes, script, "4000", fused=False)
            pid, slot = lane.pid(launch), lane.table.slots[launch.tables[0][1]]
            time.sleep(draw.uniform(0.0, 0.2))
            how = draw.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGSTOP])
            if how in (signal.SIGINT, signal.SIGTERM):  # amid the fork they are ignored
                wait_for(lambda slot=slot, pid=pid: slot.pid == pid)  # type: ignore[misc]
            os.kill(pid, how)
            if how is signal.SIGSTOP:
                time.sleep(draw.uniform(0.0, 0.1))
                os.kill(pid, signal.SIGCONT)
                time.sleep(draw.uniform(0.0, 0.1))
                os.kill(pid, signal.SIGKILL)
            assert lane.ended(goes).exit_code != 0
            assert lane.ended(stays).exit_code == 0
            assert lane.printed(stays) == alone
            wait_for(lambda: all(slot.seat == SlotState.EMPTY for slot in lane.table.slots))
    finally:
        lane.close()


LOOP = """
import signal, sys, time
heard = []
if "--own" in sys.argv:
    signal.signal(signal.SIGURG, lambda number, frame: heard.append(number))
print("begins", flush=True)
end_s = time.process_time() + 1.0
while time.process_time() < end_s:
    pass
print("ends", len(heard))
"""


@pytest.mark.slow
def test_jobs_without_iterations_take_turns(lane: ServedLane, tmp_path: Path) -> None:
    script = tmp_path / "loop.py"
    script.write_text(LOOP)
    with lane.together():
        launches = [lane.start(name, script, fused=False) for name in ("one", "two")]
    slots = [lane.table.slots[launch.tables[0][1]] for launch in launches]
    wait_for(lambda: all(slot.cuts >= 2 for slot in slots))
    assert max(slot.longest_wait_s for slot in slots) < 5.0
    for name in ("one", "two"):
        assert lane.ended(name).exit_code == 0


@pytest.mark.slow
def test_a_job_that_was_cut_keeps_its_iteration_until_it_has_the_turn_again(lane: ServedLane, tmp_path: Path) -> None:
    """Caches come to be emptied meanwhile. From then on its turn is cut no more."""
    script = tmp_path / "loop.py"
    script.write_text(LOOP)
    with competitor(lane) as turn:
        launch = lane.start("loop", script, fused=False)
        slot = lane.table.slots[launch.tables[0][1]]
        wait_for(lambda: slot.seat == SlotState.HOLDING)
        turn.take()
        lane.table.set_caching(is_kept=False)
        lane.table.wake(launch.tables[0][1])
        try:
            assert not lane.table.caches_are_emptied and slot.cut == CutState.INSIDE and slot.cuts == 1
            turn.leave()
            wait_for(lambda: lane.table.caches_are_emptied)
            turn.take()  # after the end of the script
            turn.leave()
            assert slot.cuts <= 1
        finally:
            lane.table.set_caching(is_kept=True)
        assert lane.ended("loop").exit_code == 0


REENTRANT = """
import os, sys, time, torch
from torch import nn
LAYERS, told = 50, open(sys.argv[1], "w")
done = 0

class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        global done
        end_s = time.thread_time() + 0.002
        while time.thread_time() < end_s:
            pass
        done += 1
        print(done, file=told, flush=True)
        return grad

class Nested(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, depth):
        ctx.depth = depth
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        with torch.enable_grad():
            y = torch.ones(1, requires_grad=True)
            if ctx.depth:
                y = Nested.apply(y, ctx.depth - 1)
            else:
                for each in model.parameters():
                    y = Slow.apply(y * each)
            y.backward()
        return grad, None

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.ones(1)) for _ in range(LAYERS))
    def forward(self, x):
        return Nested.apply(x + self.weights[0], 70)

model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(int(sys.argv[2])):
    model(torch.ones(1)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print(sum(each.item() for each in model.parameters()), flush=True)
os._exit(0)  # a thread of torch's pool that ends while the interpreter does so would abort the process
"""


@pytest.mark.slow
def test_a_backward_pass_in_a_thread_of_torch_is_cut(lane: ServedLane, tmp_path: Path) -> None:
    """Such threads run backward passes on GPUs, and those on processors that are nested more than sixty deep."""
    script, told = tmp_path / "reentrant.py", tmp_path / "told"
    script.write_text(REENTRANT)
    alone = subprocess.run([sys.executable, script, told, "10"], capture_output=True, check=True).stdout
    lane.hand_over_always()  # iterations of any length are long
    with competitor(lane) as turn:
        launch = lane.start("reentrant", script, str(told), "10", fused=False)
        slot = lane.table.slots[launch.tables[0][1]]
        wait_for(lambda: slot.iterations > 1)
        places: list[int] = []
        while lane.pid(launch) and slot.seat != SlotState.EMPTY and len(places) < 20:
            turn.take()
            if slot.cut == CutState.INSIDE:
                places.append(len(told.read_text().splitlines()) % 50)
            turn.leave()
        assert lane.ended("reentrant").exit_code == 0, lane.printed("reentrant", "stderr")
    assert sum(1 for each in places if each) > 3, "amid its fifty layers"
    assert lane.printed("reentrant") == alone


RAISES = """
import signal, sys, time
def late(*_):
    raise TimeoutError
signal.signal(signal.SIGALRM, late)
caught = 0
end_s = time.process_time() + 1.0
while time.process_time() < end_s:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while True:
            pass
    except TimeoutError:
        caught += 1
print("ends", caught > 10)
"""


@pytest.mark.slow
def test_a_script_with_handlers_that_raise_has_its_turn_again(lane: ServedLane, tmp_path: Path) -> None:
    """The exception ends a wait inside of a cut, and the script goes on."""
    script = tmp_path / "raises.py"
    script.write_text(RAISES)
    with cutting(lane, longest_s=0.002) as found:
        launch = lane.start("raises", script, fused=False)
        slot = lane.table.slots[launch.tables[0][1]]
        wait_for(lambda: slot.cuts > 20)
        wait_for(lambda: slot.seat == SlotState.HOLDING)
        assert lane.ended("raises").exit_code == 0
    assert found.count > 20
    assert lane.printed("raises") == b"ends True\n"


class LeavesItsLock(LaneTable):
    """Table of which the lock is not released after the section before the wait."""

    def wake(self, index: int | None) -> None:
        super().wake(index)
        self.locked().__enter__()


class LeavesItsRecord(LaneTable):
    """Table of which the lock among threads alone is released there: a handler has raised inside of the release."""

    def wake(self, index: int | None) -> None:
        super().wake(index)
        lock = self.locked()
        lock.__enter__()
        lock._threads.release()


@pytest.mark.parametrize("kind", [LeavesItsLock, LeavesItsRecord])
def test_a_lock_that_an_exception_has_left_is_given_up_before_the_wait(kind: type[LaneTable], tmp_path: Path) -> None:
    """Else every other job would wait for it. A handler may raise between the end of a section and the release."""
    holds = LaneTable.create(tmp_path / "lane")
    for slot in (0, 1):
        holds.seat(slot)
    LaneTurn(holds, 0).take()
    waits = kind(tmp_path / "lane")
    program = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX)"

    thread = threading.Thread(target=LaneTurn(waits, 1).take)
    thread.start()
    wait_for(lambda: holds.slots[1].seat == SlotState.WAITING)
    try:
        subprocess.run([sys.executable, "-c", program, holds.path], check=True, timeout=30)
    finally:
        LaneTurn(holds, 0).leave()
        thread.join()


HANGS = """
import torch
from torch import nn
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters())
for _ in range(3):
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
HANG
"""


@pytest.mark.slow
@pytest.mark.parametrize("hang", ["while True: pass", "import queue; queue.Queue().get()"])
def test_a_job_that_hangs_is_ended_however_often_it_is_cut(lane: ServedLane, hang: str, tmp_path: Path) -> None:
    script, name = tmp_path / "hangs.py", hang[:5]
    script.write_text(HANGS.replace("HANG", hang))
    with cutting(lane):
        lane.start(name, script, fused=False, timeout_s=1.0)
        assert "inside an iteration (timeout)" in lane.ended(name).reason


WAITS = """
import multiprocessing, os, queue, socket, subprocess, sys, threading, time

def wait(path):
    while not os.path.exists(path):
        time.sleep(0.01)

def told(tell):
    threading.Thread(target=lambda: (wait(sys.argv[2]), tell()), daemon=True).start()

if __name__ == "__main__":
    print("begins", flush=True)
    if sys.argv[1] == "queue":
        there = queue.Queue()
        told(lambda: there.put(None))
        there.get(timeout=60.0)
    elif sys.argv[1] == "lock":
        there = threading.Lock()
        there.acquire()
        told(there.release)
        there.acquire()
    elif sys.argv[1] == "pipe":
        here, there = os.pipe()
        told(lambda: os.write(there, b"1"))
        os.read(here, 1)
    elif sys.argv[1] == "socket":
        here, there = socket.socketpair()
        told(lambda: there.send(b"\\n"))
        here.makefile("rb").readline()
    elif sys.argv[1] == "process":
        program = "import os, sys, time\\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)"
        subprocess.run([sys.executable, "-c", program, sys.argv[2]], check=True)
    else:
        child = multiprocessing.get_context("fork").Process(target=wait, args=sys.argv[2:])
        child.start()
        child.join()
    end_s = time.process_time() + 0.2
    while time.process_time() < end_s:
        pass
    print("ends")
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["queue", "lock", "socket", "pipe", "process", "child"])
def test_a_job_that_waits_has_no_turn_until_its_wait_is_over(lane: ServedLane, how: str, tmp_path: Path) -> None:
    """One that waited for a process kept all jobs of its lane waiting until that had ended."""
    script, over = tmp_path / "waits.py", tmp_path / "over"
    script.write_text(WAITS)
    with competitor(lane) as turn:
        launch = lane.start(how, script, how, str(over), fused=False)
        slot = lane.table.slots[launch.tables[0][1]]
        wait_for(lambda: slot.seat == SlotState.HOLDING)
        turn.take()
        while slot.seat == SlotState.WAITING:  # the script was not in its wait yet
            turn.leave()
            time.sleep(0.01)
            turn.take()
        over.touch()
        wait_for(lambda: slot.seat == SlotState.WAITING)
        assert lane.printed(how) == b"begins\n"
        turn.leave()
        assert lane.ended(how).exit_code == 0, lane.printed(how, "stderr")
    assert lane.printed(how) == b"begins\nends\n"


LAZY = """
import torch
from torch import nn
for fold in range(2):
    model = nn.Sequential(nn.LazyLinear(64), nn.Linear(64, 64))
    for step in range(4):
        for _ in range(60):
            model(torch.ones(256, 64)).square().sum().backward()
        with torch.no_grad():
            for each in model.parameters():
                each.grad = None
        import ecoshare
        ecoshare.iteration()
print("ends")
"""


@pytest.mark.slow
def test_a_model_that_is_not_initialised_yet_has_no_places(lane: ServedLane, tmp_path: Path) -> None:
    script = tmp_path / "lazy.py"
    script.write_text(LAZY)
    lane.hand_over_always()  # iterations of any length are long
    with cutting(lane):
        lane.start("lazy", script, fused=False)
        assert lane.ended("lazy").exit_code == 0, lane.printed("lazy", "stderr")


@pytest.mark.slow
def test_a_script_with_a_handler_of_its_own_is_never_cut(lane: ServedLane, tmp_path: Path) -> None:
    script = tmp_path / "loop.py"
    script.write_text(LOOP)
    with cutting(lane):
        lane.start("own", script, "--own", fused=False)
        assert lane.ended("own").exit_code == 0
    assert lane.printed("own").splitlines()[-1] == b"ends 0"
