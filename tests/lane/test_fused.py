"""Jobs as threads of one process: each does the same as alone, or is moved out with a reason."""

from __future__ import annotations

import os
import random
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from ecoshare.lane.fused.process_state import Seeds
from ecoshare.lane.messages import Ended
from ecoshare.lane.tables.table_layout import SlotState
from tests.lane.served_lane import ServedLane
from tests.runtime.running import EXAMPLES, alone, copy_of_scripts, settled
from tests.runtime.test_examples import ARGS
from tests.scripts.cases import CASES, QUICK, Case
from tests.warm import wait_for

MOVED_OUT = {
    "signals": "handles signals",
    "checkpoint_resume": "handles signals",
    "threads": "starts a thread",
    "atexit_output": "starts a thread",
    "main_guard": "starts processes",
    "main_guard_spawn": "starts processes",
    "spawned": "starts processes",
    "workers": "starts processes",
    "regression_compiled_eager": "compiles a model",
    "regression_step_eager": "compiles a model",
    "compiled_eager": "compiles a model",
    "compiled_step_eager": "compiles a model",
    "compiled_step_apart_eager": "compiles a model",
    "compiled_method_eager": "compiles a model",
}
ELSEWHERE = {"segfault", "killed_self", "hangs", "eats_memory", "unseeded", "env_threads", "at_the_end_hidden"}
"""Tested by themselves below, but for the last two: one needs an interpreter of its own, for its environment, and one
leaves an object to a library's module, which outlives the job here."""

PLAIN = [
    case for case in CASES if not case.needs_compiler and case.name not in MOVED_OUT and case.name not in ELSEWHERE
]
SOME = [case for case in PLAIN if case.name in QUICK]
OTHERS = [case for case in PLAIN if case.name not in QUICK]


@pytest.fixture(scope="module")
def lane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLane]:
    served = ServedLane(tmp_path_factory.mktemp("lane"))
    served.hand_over_always()
    yield served
    served.close()


def written(folder: Path, source: str) -> Path:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(source))
    return script


def check(case: Case, lane: ServedLane, folder: Path, cold: bool) -> None:
    """Two jobs in one process, with a hand-over at every boundary, do the same as one alone."""
    places = [copy_of_scripts(folder / name) for name in ("one", "two", "alone")]
    jobs = [f"{case.name}-{number}" for number in range(2)]
    with lane.together():
        launches = [
            lane.start(job, places[0] / case.script, *case.args, cwd=place)
            for job, place in zip(jobs, places, strict=False)
        ]
    with ThreadPoolExecutor(1) as pool:
        by_itself = pool.submit(alone, places[2] / case.script, case.args, places[2], cold)
        ends = [lane.ended(job) for job in jobs]
    code, stdout = by_itself.result()
    assert lane.pid(launches[0]) == lane.pid(launches[1])
    for ended in ends:
        # A failure counts when it repeats in a process of its own.
        assert (ended.exit_code, ended.outcome) == (code, "moved out" if code else "completed"), ended
        assert lane.printed(ended.job) == stdout
        if case.iterations is not None:
            assert ended.usage["iterations"] == case.iterations
            assert case.iterations < 2 or min(each.usage["handovers"] for each in ends) > 1
        if case.eval_iterations is not None:
            assert ended.usage["eval_iterations"] == case.eval_iterations


@pytest.mark.slow
@pytest.mark.parametrize("case", SOME, ids=lambda case: case.name)
def test_two_in_a_process_are_as_one_alone(case: Case, lane: ServedLane, tmp_path: Path) -> None:
    check(case, lane, tmp_path, cold=False)


@pytest.mark.nightly
@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.name)
def test_so_are_the_others(case: Case, lane: ServedLane, tmp_path: Path) -> None:
    check(case, lane, tmp_path, cold=False)


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(ARGS))
def test_so_is_every_example(name: str, lane: ServedLane, tmp_path: Path) -> None:
    jobs = [f"example-{name}-{number}" for number in range(2)]
    script = EXAMPLES / f"{name}.py"
    with lane.together():
        launches = [lane.start(job, script, *ARGS[name], cwd=tmp_path) for job in jobs]
    ends = [lane.ended(job) for job in jobs]
    assert lane.pid(launches[0]) == lane.pid(launches[1])
    stdout = settled(script, ARGS[name], tmp_path)
    assert all(ended.exit_code == 0 and ended.usage["handovers"] > 1 for ended in ends)
    assert [lane.printed(job) for job in jobs] == [stdout, stdout]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["signals", "threads"])
def test_what_a_thread_cannot_do_it_does_in_a_process_of_its_own(name: str, lane: ServedLane, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == name)
    scripts = copy_of_scripts(tmp_path)
    first = lane.start(name, scripts / case.script, *case.args)
    ended = lane.ended(name)
    assert ended.outcome == "moved out"
    assert MOVED_OUT[name] in ended.reason
    again = lane.start(f"{name}-again", scripts / case.script, *case.args)  # the server knows the script by now
    ended = lane.ended(f"{name}-again")
    assert (ended.outcome, ended.usage["iterations"]) == ("completed", case.iterations)
    assert lane.pid(again) != lane.pid(first)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MOVED_OUT))
def test_all_that_cannot_are_moved_out(name: str, lane: ServedLane, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == name)
    scripts = copy_of_scripts(tmp_path)
    lane.start(f"{name}-out", scripts / case.script, *case.args)
    ended = lane.ended(f"{name}-out")
    assert ended.outcome == "moved out"
    assert MOVED_OUT[name] in ended.reason


@pytest.mark.parametrize(("name", "how"), [("segfault", "SIGSEGV"), ("killed_self", "SIGKILL")])
def test_a_dying_job_ends_its_process_and_is_named(name: str, how: str, lane: ServedLane, tmp_path: Path) -> None:
    scripts = copy_of_scripts(tmp_path)
    with lane.together():
        for job in ("one", "two"):
            lane.start(f"{name}-{job}", scripts / f"{name}.py")
    ends = {ended.outcome: ended for ended in (lane.ended(f"{name}-one"), lane.ended(f"{name}-two"))}
    culprit = ends["moved out"].job
    assert how in ends["moved out"].reason
    assert ends["lost"].reason == f"the process that it shared died of {culprit}"
    lane.start(culprit, scripts / f"{name}.py", attempt=2, fused=False)
    assert lane.ended(culprit, attempt=2).outcome == "crashed"
    assert all(slot.seat == SlotState.EMPTY for slot in lane.table.slots)


@pytest.mark.nightly
def test_a_job_that_hangs_is_one_that_failed(lane: ServedLane, tmp_path: Path) -> None:
    script = written(
        tmp_path,
        """
        import sys, time
        import ecoshare
        for step in range(int(sys.argv[1])):
            ecoshare.iteration()
            time.sleep(0.01)
        while sys.argv[2] == "hang":
            pass
        """,
    )
    with lane.together():
        lane.start("hangs", script, "5", "hang", timeout_s=0.5)
        lane.start("beside", script, "200", "end")
    ended = lane.ended("hangs")
    assert (ended.outcome, ended.exit_code) == ("timed out", 137)
    assert "inside an iteration" in ended.reason
    assert lane.ended("beside").outcome == "lost"


@pytest.mark.slow
def test_one_can_be_stopped_and_the_others_go_on(lane: ServedLane, tmp_path: Path) -> None:
    script = written(
        tmp_path,
        """
        import sys, time
        import ecoshare
        try:
            for step in range(int(sys.argv[1])):
                ecoshare.iteration()
                time.sleep(0.01)
        except Exception:
            print("caught")
        print("end")
        """,
    )
    lane.start("long", script, "100000")
    other = lane.start("short", script, "150")
    wait_for(lambda: all(lane.table.slots[slot].iterations > 10 for _, slot in other.tables))
    lane.stop("long")
    ended = lane.ended("long")
    assert (ended.outcome, ended.exit_code, ended.reason) == ("stopped", 143, "asked to")
    assert lane.printed("long") == b""
    assert lane.ended("short").outcome == "completed"
    assert lane.printed("short") == b"end\n"


def test_unseeded_jobs_draw_different_numbers(lane: ServedLane, tmp_path: Path) -> None:
    scripts = copy_of_scripts(tmp_path)
    for job in ("unseeded-1", "unseeded-2"):
        lane.start(job, scripts / "unseeded.py")
        assert lane.ended(job).outcome == "completed"
    one, two = (lane.printed(job).splitlines() for job in ("unseeded-1", "unseeded-2"))
    assert len(one) == len(two) > 3
    assert not set(one) & set(two)


@pytest.mark.slow
def test_nothing_of_a_job_runs_without_the_turn(lane: ServedLane, tmp_path: Path) -> None:
    script = written(
        tmp_path,
        """
        import time
        import ecoshare
        for step in range(300):
            began_s = time.monotonic()
            while time.monotonic() < began_s + 0.0005:
                pass
            print(began_s, time.monotonic())
            ecoshare.iteration()
        """,
    )
    jobs = [f"turns-{number}" for number in range(3)]
    with lane.together():
        for job in jobs:
            lane.start(job, script)
    ends = [lane.ended(job) for job in jobs]
    assert all(ended.usage["handovers"] > 100 for ended in ends)
    times = sorted(tuple(map(float, line.split())) for job in jobs for line in lane.printed(job).splitlines())
    assert len(times) == 900
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(times))


CHANGES = """
import builtins, gc, logging, os, random, sys, warnings
import numpy, torch
import ecoshare

def look():
    model = torch.nn.Linear(2, 2)
    calls = []
    handle = model.register_forward_hook(lambda *_: calls.append(1))
    model(torch.ones(1, 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.warn("mine", UserWarning)
    return [
        sys.argv[1:], os.path.basename(os.getcwd()), os.environ.get("COLOUR"), os.getenv("COLOUR"), sys.path[:2][1:],
        torch.get_default_dtype(), torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(), gc.isenabled(), sys.getrecursionlimit(),
        logging.getLogger("mine").level, len(logging.root.handlers), logging.root.level,
        len(logging.getLogger("mine").handlers), len(caught), hooked, sys.excepthook is sys.__excepthook__,
        random.random(), numpy.random.randn(), torch.rand(()).item(), "mine" in sys.modules,
    ]

hooked = 0
def count(*_):
    global hooked
    hooked += 1

name = sys.argv[1]
random.seed(name), numpy.random.seed(len(name)), torch.manual_seed(len(name))
if name == "changes":
    os.makedirs("elsewhere", exist_ok=True)
    os.chdir("elsewhere")
    os.environ["COLOUR"] = "red"
    sys.path.insert(1, "/nowhere")
    sys.modules["mine"] = sys.modules["__main__"]
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("medium")
    gc.disable()
    sys.setrecursionlimit(2000)
    logging.getLogger("mine").setLevel(10)
    logging.getLogger("mine").addHandler(logging.NullHandler())
    logging.basicConfig(level=5)
    warnings.simplefilter("ignore")
    sys.excepthook = print
    torch.nn.modules.module.register_module_forward_pre_hook(count)
for step in range(20):
    print(step, look(), file=sys.stdout if step % 2 else sys.stderr)
    ecoshare.iteration()
"""


@pytest.mark.slow
def test_what_one_changes_the_others_do_not_see(lane: ServedLane, tmp_path: Path) -> None:
    script = written(tmp_path, CHANGES)
    with lane.together():
        for name in ("changes", "plain"):
            lane.start(f"both-{name}", script, name)
    both = [lane.ended(f"both-{name}") for name in ("changes", "plain")]
    assert min(ended.usage["handovers"] for ended in both) > 10
    for name in ("changes", "plain"):
        lane.start(f"own-{name}", script, name, fused=False)
        assert lane.ended(f"own-{name}").outcome == "completed"
        for stream in ("stdout", "stderr"):
            assert lane.printed(f"both-{name}", stream) == lane.printed(f"own-{name}", stream)


def run_together(lane: ServedLane, jobs: list[str], script: Path, *args: str) -> list[Ended]:
    """Ends of jobs of one script that begin at once, each with a word of its own."""
    with lane.together():
        for job, word in zip(jobs, args, strict=True):
            lane.start(job, script, word)
    return [lane.ended(job) for job in jobs]


def test_a_working_folder_is_its_own_jobs_by_whatever_name_or_none(lane: ServedLane, tmp_path: Path) -> None:
    script = written(
        tmp_path,
        """
import os, sys
from pathlib import Path
from typing import Any
import ecoshare
what, here = sys.argv[1], Path.cwd()
if what != "stays":
    os.makedirs(here / what)
    (here / what / what).touch()
    os.chdir(what)
if what == "removed":
    os.remove(what)
    os.rmdir(here / what)
if what == "stays":
    while not (here / "renamed" / "renamed").exists():
        ecoshare.iteration()
    os.rename(here / "renamed", here / "other")
for step in range(40):
    ecoshare.iteration()
    print(os.path.exists(what), os.listdir(".") == ["script.py"])
""",
    )
    words = ["renamed", "stays", "removed"]
    names = [f"folder-{word}" for word in words]
    ends = run_together(lane, names, script, *words)
    assert [ended.outcome for ended in ends] == 3 * ["completed"], ends
    assert min(ended.usage["handovers"] for ended in ends) > 10
    for name, line in zip(names, (b"True False", b"False False", b"False False"), strict=True):
        assert lane.printed(name).splitlines() == 40 * [line]


def test_a_working_folder_that_cannot_be_kept_costs_its_job_the_shared_process(
    lane: ServedLane, tmp_path: Path
) -> None:
    script = written(
        tmp_path,
        """
import os, sys
import ecoshare
if sys.argv[1] == "greedy":
    ecoshare.iteration()
    os.makedirs("elsewhere")
    os.chdir("elsewhere")
    handles = []
    while True:
        try:
            handles.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            break
    ecoshare.iteration()
for _ in range(20):
    ecoshare.iteration()
""",
    )
    names = ["handles-greedy", "handles-plain"]
    greedy, plain = run_together(lane, names, script, "greedy", "plain")
    assert greedy.outcome == "moved out" and "working folder" in greedy.reason, greedy
    assert plain.outcome == "completed"


KEEPS = """
import sys, time
import ecoshare
kept = []
for step in range(60):
    kept.append(bytearray(int(sys.argv[1]) << 20))
    time.sleep(0.01)
    ecoshare.iteration()
print(len(kept))
"""


@pytest.mark.slow
def test_a_job_that_outgrows_its_profile_goes_on(lane: ServedLane, tmp_path: Path) -> None:
    """If it failed, the job would begin again, and do again what it has done, while memory is free."""
    script = written(tmp_path, KEEPS)
    with lane.together():
        lane.start("grows", script, "20", cap_bytes=900 << 20)
        lane.start("stays", script, "1", cap_bytes=900 << 20)
    for name in ("grows", "stays"):
        assert lane.ended(name).outcome == "completed"
        assert lane.printed(name) == b"60\n"


@pytest.mark.slow
def test_the_largest_of_a_lane_that_is_full_is_moved_out(lane: ServedLane, tmp_path: Path) -> None:
    script = written(tmp_path, KEEPS)
    lane.start("largest", script, "12", process_bytes=800 << 20)
    lane.start("smaller", script, "1", process_bytes=800 << 20)
    assert "it is the largest of a process" in lane.ended("largest").reason
    assert lane.ended("smaller").outcome == "completed"


@pytest.mark.slow
def test_a_process_that_keeps_what_jobs_leave_behind_gets_no_more_of_them(lane: ServedLane, tmp_path: Path) -> None:
    script = written(
        tmp_path,
        """
        import torch
        import ecoshare
        if not hasattr(torch, "left_behind"):
            torch.left_behind = []
        torch.left_behind.append(bytearray(150 << 20))
        ecoshare.iteration()
        """,
    )
    pids = []
    for number in range(8):
        launch = lane.start(f"leaks-{number}", script)
        assert lane.ended(f"leaks-{number}").outcome == "completed"
        pids.append(lane.pid(launch))
    assert 1 < len(set(pids)) < 8
    assert pids == sorted(pids, key=pids.index)  # never back to an old one


def test_the_states_of_all_generators_are_found() -> None:
    def draw(most: int) -> list[float]:
        """An odd number of normal deviates leaves one for the next call, which must be the job's own."""
        normal = [
            each for _ in range(most) for each in (random.gauss(0, 1), numpy.random.randn(), torch.randn(()).item())
        ]
        return [*normal, random.random(), *numpy.random.rand(700), *torch.rand(700).tolist()]

    def seed(number: int) -> None:
        random.seed(number), numpy.random.seed(number), torch.manual_seed(number)

    seeds = Seeds()
    seed(3)
    expected = draw(3) + draw(4)
    seed(3)
    drawn = draw(3)
    kept = seeds.get()
    seed(4)
    draw(6)
    seeds.set(kept)
    assert drawn + draw(4) == expected
    random.seed(), numpy.random.seed(), torch.seed()


def test_a_script_that_puts_a_function_of_its_own_into_a_library_may_do_so_in_each_trial(
    lane: ServedLane, tmp_path: Path
) -> None:
    script = written(
        tmp_path,
        """
        import torch
        calls = []
        before = torch.relu
        def relu(x):
            calls.append(1)
            return before(x)
        torch.relu = relu
        print(torch.relu(torch.ones(1)).item(), len(calls))
        """,
    )
    for number in range(3):
        lane.start(f"patches-{number}", script)
        assert lane.ended(f"patches-{number}").outcome == "completed", lane.printed(f"patches-{number}", "stderr")
        assert lane.printed(f"patches-{number}") == b"1.0 1\n"


AS_ALONE = {
    "a stdout that was wrapped": """
        import sys
        print("before")
        class Both:
            def __init__(self): self.terminal = sys.stdout
            def write(self, text): self.terminal.write(text)
            def flush(self): pass
        sys.stdout = Both()
        print("after")
    """,
    "a module that puts something else in its place": """
        import sys, types
        sys.modules.setdefault("settings", types.SimpleNamespace(n=0)).n += 1
        made = sys.modules.setdefault("made", types.ModuleType("made"))
        made.n = getattr(made, "n", 0) + 1
        print(sys.modules["settings"].n, made.n)
    """,
    "how tensors are printed": """
        import torch
        print(torch.tensor(0.123456789))
        torch.set_printoptions(precision=8)
        print(torch.tensor(0.123456789))
    """,
    "switches of torch": """
        import torch
        print(torch.backends.cuda.flash_sdp_enabled(), torch.backends.mkldnn.deterministic,
              torch.is_anomaly_check_nan_enabled())
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.mkldnn.deterministic = True
        torch.autograd.set_detect_anomaly(True, check_nan=False)
    """,
    "warnings into the log": """
        import logging, sys, warnings
        logging.basicConfig(stream=sys.stdout)
        logging.captureWarnings(True)
        warnings.warn("mine")
    """,
    "handlers that keep what they have until the end": """
        import logging, logging.handlers, sys
        target = logging.StreamHandler(sys.stdout)
        logging.getLogger().addHandler(logging.handlers.MemoryHandler(100, target=target))
        logging.getLogger().error("at the end")
    """,
    "a stdin that was closed": """
        import sys
        print(repr(sys.stdin.read()), sys.stdout.name, sys.stdout.mode)
        sys.stdin.close()
    """,
    "a function in place of print": """
        import builtins
        before = builtins.print
        builtins.print = lambda *args: before("mine", *args)
        print(1)
    """,
    "an exit from an exit": """
        import atexit, sys
        atexit.register(sys.exit, 3)
        print("main")
    """,
    "figures that are not closed": """
        import matplotlib
        matplotlib.use("agg")
        from matplotlib import pyplot
        pyplot.plot([1, 2], [3, 4])
        print(len(pyplot.gca().lines), pyplot.get_fignums())
    """,
    "the name of the thread": """
        import threading
        print(threading.current_thread().name)
    """,
}


QUICKLY = {"how tensors are printed", "a stdin that was closed", "an exit from an exit"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=[] if what in QUICKLY else pytest.mark.slow) for what in AS_ALONE]
)
def test_one_after_the_other_is_as_alone(what: str, lane: ServedLane, tmp_path: Path) -> None:
    script = written(tmp_path, AS_ALONE[what])
    name = what.replace(" ", "-")
    lane.start(f"{name}-alone", script, fused=False)
    alone = lane.ended(f"{name}-alone")
    for number in range(3):
        lane.start(f"{name}-{number}", script)
        ended = lane.ended(f"{name}-{number}")
        assert (ended.outcome, ended.exit_code) == (alone.outcome, alone.exit_code), ended
        assert lane.printed(f"{name}-{number}") == lane.printed(f"{name}-alone")


@pytest.mark.parametrize(
    ("what", "source"),
    [
        ("becomes another program", "import os; os.execv('/bin/true', ['true'])"),
        ("gives its standard streams away", "import os; os.dup2(2, 1)"),
        ("says how processes start", "import multiprocessing; multiprocessing.set_start_method('spawn', force=True)"),
        ("sets the time zone", "import time; time.tzset()"),
        ("ValueError: mine", "import sys\ndef broken(*_): raise KeyError\nraise ValueError('mine')"),
        ("RuntimeError", "import torch\nraise RuntimeError('a name is taken')"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_apart_is_tried_alone(what: str, source: str, lane: ServedLane, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(source + "\n")
    lane.start(tmp_path.name, script)
    ended = lane.ended(tmp_path.name)
    assert ended.outcome == "moved out"
    assert what in ended.reason


def test_files_that_are_left_open_end_a_process_too(lane: ServedLane, tmp_path: Path) -> None:
    script = written(tmp_path, "import os\nfor _ in range(40): os.open('/dev/null', os.O_RDONLY)")
    pids = []
    for number in range(4):
        launch = lane.start(f"open-{number}", script)
        assert lane.ended(f"open-{number}").outcome == "completed"
        pids.append(lane.pid(launch))
    assert len(set(pids)) == 2


@pytest.mark.nightly
def test_a_long_waiting_job_is_stopped_without_harm_to_the_others(lane: ServedLane, tmp_path: Path) -> None:
    script = written(
        tmp_path,
        """
        import sys, time
        import ecoshare
        ecoshare.iteration()
        time.sleep(float(sys.argv[1]))
        ecoshare.iteration()
        print("end")
        """,
    )
    holder = lane.start("holder", script, "3")
    wait_for(lambda: lane.table.slots[holder.tables[0][1]].iterations >= 1)
    lane.start("waiter", script, "0")
    time.sleep(0.3)
    lane.stop("waiter", grace_s=0.3, pruned=True)
    assert (lane.ended("waiter").outcome, lane.printed("waiter")) == ("pruned", b"")
    assert lane.ended("holder").outcome == "completed"


@pytest.mark.slow
def test_every_thread_may_run_on_all_processors_after_its_turns(lane: ServedLane, tmp_path: Path) -> None:
    script = written(
        tmp_path,
        """
import os
import ecoshare
for step in range(300):
    ecoshare.iteration()
    print(sorted(os.sched_getaffinity(0)))
""",
    )
    names = [f"processors-{number}" for number in range(3)]
    ends = run_together(lane, names, script, "", "", "")
    expected = f"{sorted(os.sched_getaffinity(0))}\n".encode() * 300
    assert min(ended.usage["handovers"] for ended in ends) > 100
    assert [lane.printed(name) for name in names] == 3 * [expected]


@pytest.mark.nightly
def test_only_the_job_that_outgrew_its_promise_ends_where_memory_ends(lane: ServedLane, tmp_path: Path) -> None:
    """A job keeps what it takes while there is memory for all. If it failed, neighbours would pay for its growth."""
    script = written(tmp_path, KEEPS)
    memory: dict[str, Any] = {"fused": False, "cap_bytes": 700 << 20, "machine_bytes": 1400 << 20}
    with lane.together():
        lane.start("outgrows", script, "40", **memory)
        lane.start("exceeds", script, "6", **memory)
        lane.start("keeps", script, "1", **memory)
    ended = lane.ended("outgrows")
    assert ended.outcome == "outgrew its memory"
    assert "promised 0.68" in ended.reason and "there are 1.37 GiB for them" in ended.reason
    for name in ("exceeds", "keeps"):
        assert lane.ended(name).outcome == "completed"
        assert lane.printed(name) == b"60\n"
