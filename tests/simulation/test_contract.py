"""The shipped contract: our policies keep it, and wrong policies get a message about their fault."""

from __future__ import annotations

import importlib
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from itertools import count
from pathlib import Path
from random import Random

import pytest

from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.placement.memory_fit import MemoryFit
from ecoshare.core.policies import known_names, named
from ecoshare.core.policies.fluid import Fluid
from ecoshare.core.policies.orders import Fifo, Srtf
from ecoshare.core.records import JobState
from ecoshare.simulation.result import UsageIntegrals
from ecoshare.simulation.world import World
from ecoshare.testing.policy_contract import PolicyContract
from tests.simulation.installing import install
from tests.simulation.simulating import OURS
from tests.warm import COLD, ROOT

OWN = Path(__file__).parent / "own_policy"
PAGE = (ROOT / "docs" / "simulating.md").read_text()

CHECKS = [name for name in vars(PolicyContract) if name.startswith("test_")]

SMALL = {
    "fixed": 1.0,
    "quantum": 3.0,
    "restart": 1.0,
    "limit_1": 5.0,
    "limit_2": 20.0,
    "reset": 5.0,
    "round": 4.0,
    "starvation": 2.0,
    "trial": 3.0,
    "margin": 0.5,
}
"""Options with which levels or rounds change within the minute of a trace."""

JOULES = {"limit_1": 1000.0, "limit_2": 4000.0}


@cache
def contract(policy: object, options: tuple[tuple[str, float], ...] = ()) -> PolicyContract:
    made: PolicyContract = type("TestIt", (PolicyContract,), {"policy": policy, "options": options})()
    return made


QUICK = {"max-min"}
"""Policy with rounds in the quick tests; the others are among the slow tests."""

EVERY_CHANGE = QUICK | {"energy", "fair", "fifo", "jct", "priority"}
"""Policies that CI holds to the contract, one of each kind. The others are held to it at night."""


class OwnContract(PolicyContract):
    """Contract of a policy of ecoshare's own, with small options and as it is."""

    @pytest.mark.slow
    def test_a_fresh_process_decides_alike(self) -> None:
        super().test_a_fresh_process_decides_alike()

    def test_it_keeps_the_contract_without_options(self) -> None:
        contract(self.policy).test_every_job_ends()


@pytest.mark.slow
class SlowContract(OwnContract):
    """The same; what doubles its time waits for the night."""

    @pytest.mark.nightly
    def test_a_fresh_process_decides_alike(self) -> None:
        super().test_a_fresh_process_decides_alike()

    @pytest.mark.nightly
    def test_equal_inputs_give_equal_decisions(self) -> None:
        super().test_equal_inputs_give_equal_decisions()

    @pytest.mark.nightly
    def test_it_keeps_the_contract_without_options(self) -> None:
        super().test_it_keeps_the_contract_without_options()


for policy in OURS:
    small = {**SMALL, **JOULES} if policy == "least-energy" else SMALL
    options = tuple((name, small[name]) for name in named(policy).options if name in small)
    title = f"Test{policy.title().replace('-', '')}"  # a class each: the tests of one share its simulations
    kind = OwnContract if policy in QUICK else SlowContract
    made = type(title, (kind,), {"policy": policy, "options": options})
    globals()[title] = made if policy in EVERY_CHANGE else pytest.mark.nightly(made)


class Aging(Fifo):
    """Policy in which the longest waiter should go first, but the order is asked only once."""

    name = "aging"

    def order(self, job, at_s):
        return (job.arrival_s - at_s,)


class Stale(Fifo):
    """Policy with an order that changes while a job waits: the number of questions so far."""

    name = "stale"

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def order(self, job, at_s):
        self.seen.add(job.spec.name)
        return (len(self.seen),)


class Nan(Fifo):
    name = "nan"
    places = None

    def rank(self, job):
        return math.nan


class NanOrder(Fifo):
    name = "nan-order"

    def order(self, job, at_s):
        return (math.nan,) if job.number % 2 else (0.0,)


class Bare(Fifo):
    name = "bare"

    def order(self, job, at_s):
        return job.arrival_s


class Uneven(Fifo):
    name = "uneven"

    def order(self, job, at_s):
        return (0.0,) if job.spec.gpus > 1 else ()


class Drifting(Srtf):
    """Policy with a wrong drift: the remaining time shrinks by one a second, not by a half."""

    name = "drifting"

    def drift(self, job):
        return -0.5


class Idle(Fifo):
    """Policy that chooses no job in any round."""

    name = "idle"
    places, preempts = None, True
    round_s = 10.0

    def arrange(self, jobs, devices, at_s):
        return []


class Twice(Idle):
    name = "twice"

    def arrange(self, jobs, devices, at_s):
        return [*jobs, *jobs[:1]]


class Restless(Fifo):
    """Policy that changes the level of a job at once, again and again."""

    name = "restless"

    def changes_s(self, job, at_s):
        return at_s

    def change(self, job, at_s):
        job.level += 1


class Backwards(Fifo):
    name = "backwards"

    def changes_s(self, job, at_s):
        return at_s - 5.0 if job.state is JobState.QUEUED and not job.level else math.inf

    def change(self, job, at_s):
        job.level = 1


class Fractional(Fluid):
    """Policy with a width of one and a half, which no job can have."""

    name = "fractional"

    def pour(self, needs, devices, share, most):
        return [1.5] * len(needs)


class Raising(Fifo):
    name = "raising"

    def order(self, job, at_s):
        return (1.0 / (job.number - 7),)


class Dice(Fifo):
    name = "dice"
    random = Random()

    def order(self, job, at_s):
        return (self.random.random(),)


class Counting(Fifo):
    """Policy that decides by earlier runs."""

    name = "counting"
    runs = count()

    def __init__(self) -> None:
        self.run = next(self.runs)

    def order(self, job, at_s):
        return ((job.number * 7 + self.run) % 5,)


class Hashing(Fifo):
    """Policy with an order by the hashes of strings, which differ in each process."""

    name = "hashing"

    def order(self, job, at_s):
        return (hash(job.spec.name),)


class Nameless(Fifo):
    name = "fifo"


class Optional(Fifo):
    name = "optional"
    options = ("size",)


class Broken(Optional):
    name = "broken"

    @classmethod
    def from_config(cls, config):
        return dict(config.options)["size"]


WAITING = "test_the_order_of_a_job_that_waits_does_not_depend_on_the_time"
COMPARABLE = "test_its_answers_can_be_compared"
DRIFT = "test_drift_is_what_its_order_does_while_a_job_runs"
ENDS = "test_every_job_ends"
BY_ITSELF = "test_levels_and_rounds_keep_their_word"
EQUAL = "test_equal_inputs_give_equal_decisions"
FRESH = "test_a_fresh_process_decides_alike"
SAYS = "test_it_says_what_it_is"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "check", "words"),
    [
        (Aging, WAITING, r"policy aging, .*order\(\) of job j\d+ \(queued\) was .* while it waited; .*LevelPolicy"),
        (Stale, WAITING, r"while it waited"),
        (Nan, COMPARABLE, r"jobs share lanes: rank\(\) of job j\d+ .* is nan: expected a number"),
        (NanOrder, COMPARABLE, r"order\(\) of job j1 \(queued\) is \(nan,\): expected a tuple of numbers"),
        (Bare, COMPARABLE, r"order\(\) of job j0 \(queued\) is 0\.0: expected a tuple of numbers"),
        (Bare, ENDS, r"the scheduler cannot go on: TypeError: .*\nbefore: order\(\) of job j0"),
        (Uneven, COMPARABLE, r"order\(\) of job j\d+ .* has \d parts, and had \d before"),
        (Drifting, DRIFT, r"while it ran; drift\(\) -0\.5 a second promised"),
        pytest.param(Idle, ENDS, r"policy idle, .* lets 24 jobs wait for ever: j0, j1, j2", marks=pytest.mark.nightly),
        (Twice, BY_ITSELF, r"arrange\(\) chose \['j0', 'j0'\]: expected some of the jobs .* once"),
        pytest.param(Restless, ENDS, r"the core is woken for ever: \d+ events by 0 s", marks=pytest.mark.nightly),
        (Backwards, BY_ITSELF, r"changes_s\(\) of job j0 \(queued\) at 0 s is -5\.0: expected a time ahead"),
        (Fractional, COMPARABLE, r"pour\(\) of \d+ jobs? is \[1\.5.*\]: expected of each a whole number up to \[1"),
        (Raising, ENDS, r"order\(\) of job j7 \(queued\) raised ZeroDivisionError"),
        (Dice, EQUAL, r"when it was asked again at once"),
        (Counting, EQUAL, r"policy counting: a second run of the same trace decides otherwise, first in line \d+:\n"),
        (Hashing, FRESH, r"policy hashing: a fresh process \(PYTHONHASHSEED=\d\) decides otherwise"),
        (Nameless, SAYS, r"Nameless\.name is 'fifo', as a policy of ecoshare's own"),
        (Optional, SAYS, r"Optional has options, and needs a class method from_config"),
        (Broken, SAYS, r"policy broken cannot be made with no options: KeyError: 'size'"),
        ("patience", SAYS, r"is 'patience': expected one of allox, .*; is the package installed"),
        (None, ENDS, r"TestIt\.policy must name the policy, or be its class"),
    ],
)
def test_what_is_wrong_is_told(policy: object, check: str, words: str) -> None:
    with pytest.raises(AssertionError, match=f"(?s){words}"):
        getattr(contract(policy), check)()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "check"),
    [
        (Nan, COMPARABLE),
        *(pytest.param(*each, marks=pytest.mark.nightly) for each in ((Aging, WAITING), (Drifting, DRIFT))),
    ],
)
def test_nothing_else_is_blamed(policy: object, check: str) -> None:
    for other in CHECKS:
        if other not in (check, FRESH):  # a process of it would only repeat the message
            getattr(contract(policy), other)()


def without_idle(self: UsageIntegrals, devices: int, _watts: float, now_s: float) -> None:
    self.advance(now_s)
    self.busy += devices


FIND = LaneIndex.find


@pytest.mark.parametrize(
    ("part", "method", "wrong", "check", "words"),
    [
        (
            MemoryFit,
            "_has_room",
            lambda self, device, newcomers: True,
            "test_nothing_is_given_twice",
            r"has less memory than its lanes need",
        ),
        (
            LaneIndex,
            "find",
            lambda self, *how: FIND(self, *how)[:1],
            "test_nothing_is_given_twice",
            r"of \d GPUs got 1",
        ),
        (World, "speed", lambda self, *how: 2.0, "test_work_done_is_work_asked", r"job j\d+ of \d+ s took \d"),
        (
            UsageIntegrals,
            "work",
            without_idle,
            "test_energy_is_the_integral_of_power",
            r"J, and the power of its devices",
        ),
    ],
)
def test_a_fault_of_the_core_is_seen(
    monkeypatch: pytest.MonkeyPatch, part: type, method: str, wrong: object, check: str, words: str
) -> None:
    monkeypatch.setattr(part, method, wrong)
    with pytest.raises(AssertionError, match=words):
        getattr(contract.__wrapped__("pack"), check)()


def test_the_names_of_policies_are_as_before() -> None:
    before = known_names()
    with pytest.raises(AssertionError):
        contract(Raising).test_every_job_ends()
    assert before == known_names()


@pytest.mark.slow
def test_an_entry_point_that_cannot_be_loaded_is_told(installed: dict[str, str]) -> None:
    Path(installed["HERE"], "patience.py").write_text("import no_such_module\n")
    done = run(installed, *COLD, "simulate", "--generate", "sweep", "--policy", "patience")
    assert (done.returncode, done.stdout) == (2, "")
    assert "patience:Patience cannot be loaded: No module named 'no_such_module'" in done.stderr


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """Environment with the package of docs/simulating.md, installed in a folder as by pip."""
    for name in ("pyproject.toml", "patience.py", "impatience.py", "test_patience.py"):
        shutil.copy(OWN / name, tmp_path)
    install(tmp_path)
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "80", "HERE": str(tmp_path)}


def run(environment: dict[str, str], *line: str) -> subprocess.CompletedProcess[str]:
    here = environment["HERE"]
    return subprocess.run(line, capture_output=True, text=True, cwd=here, env=environment, check=False)


def blocks(language: str, page: str = PAGE) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [text for name, text in found if name == language]


def test_the_page_shows_the_package_that_is_tested() -> None:
    assert blocks("python") == [
        (OWN / f"{name}.py").read_text() for name in ("patience", "impatience", "test_patience")
    ]
    assert blocks("toml") == [(OWN / "pyproject.toml").read_text()]


@pytest.mark.nightly
def test_the_package_of_the_page_keeps_the_contract(installed: dict[str, str]) -> None:
    command = blocks("console")[-1]
    words = shlex.split(command.removeprefix("$ "))
    assert words[0] == "pytest"
    done = run(installed, sys.executable, "-m", *words, "-p", "no:cacheprovider")
    assert done.returncode == 0 and f"{2 * len(CHECKS)} passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.nightly
def test_an_impatient_policy_changes_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(OWN))
    options = (("patience", 3.0),)
    patience, impatience = (importlib.import_module(name) for name in ("patience", "impatience"))
    one = list(contract(patience.Patience, options).decisions())
    other = list(contract(impatience.Impatient, options).decisions())
    assert one != other
    wakes, more = (sum("WakeAt" in line for line in lines) for lines in (one, other))  # parked jobs wake the core, too
    assert more > wakes


def test_the_pages_have_all_policies() -> None:
    pages = (ROOT / "docs/sharing.md").read_text() + (ROOT / "docs/policies.md").read_text()
    table = re.findall(r"^\| `([\w-]+)` \|.*\| (yes|no) \| (.*?) ?\| .*\|$", pages, re.MULTILINE)
    found = {}
    for name, moves, options in table:
        queues = re.sub(r"`limit_1` to `limit_9`", ", ".join(f"`limit_{n}`" for n in range(1, 10)), options)
        found[name] = (moves == "yes", set(re.findall(r"`(\w+)`", queues)))
    assert found == {name: (named(name).preempts, set(named(name).options)) for name in OURS}
