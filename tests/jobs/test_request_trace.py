"""Times of requests from CSV, lists of gaps and workloads of DISB, and the mistakes of such files."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.jobs import request_trace
from ecoshare.jobs.request_trace import RequestTrace, read_trace


def read(folder: Path, content: str | bytes, task: str = "") -> RequestTrace:
    path = folder / "t"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_trace(path, "t", task)


def workload(load: dict[str, Any], time: object = 2) -> str:
    return json.dumps({"time": time, "tasks": [{"id": "a", "load": load}]}, indent=1)


def data(name: str) -> Path:
    if "ECOSHARE_DATA" not in os.environ:
        pytest.skip(f"ECOSHARE_DATA names no folder with {name}")
    return Path(os.environ["ECOSHARE_DATA"]) / name


@pytest.mark.parametrize(
    ("content", "arrivals_s"),
    [
        ("arrival_s\n0\n0.5\n0.5\n1e1\n", [0.0, 0.5, 0.5, 10.0]),
        ('\ufeffid, arrival_s ,x\r\n1, 0.25,a\r\n\r\n2,0.5,"b,c"\r\n', [0.25, 0.5]),
        ("[0.25, 0, 0.5, 1]", [0.25, 0.25, 0.75, 1.75]),
        (" [1]\n", [1.0]),
        (workload({"type": "trace", "trace": [0, 250, 1999, 2000]}), [0.0, 0.25, 1.999]),
        (json.dumps({"tasks": [{"load": {"type": "trace", "trace": [5000]}}]}), [5.0]),
        (workload({"type": "periodic", "frequency": 2}), [0.0, 0.5, 1.0, 1.5]),
        (workload({"type": "periodic", "frequency": 0.4}), [0.0]),
    ],
)
def test_the_three_forms(tmp_path: Path, content: str, arrivals_s: list[float]) -> None:
    found = read(tmp_path, content)
    assert found.problems == () and found.arrivals_s == pytest.approx(arrivals_s)


def test_poisson_arrivals_are_the_same_each_time(tmp_path: Path) -> None:
    content = workload({"type": "poisson", "frequency": 100}, time=50)
    found = read(tmp_path, content)
    assert found == read(tmp_path, content) and 4700 < len(found.arrivals_s) < 5300
    assert found.arrivals_s == sorted(found.arrivals_s) and found.arrivals_s[0] > 0 and found.arrivals_s[-1] < 50


@pytest.mark.parametrize(
    ("content", "problems"),
    [
        ("", ["t:1:1: the header has no column 'arrival_s'"]),
        ("time,x\n1,2\n", ["t:1:1: the header has no column 'arrival_s'; it has 'time', 'x'"]),
        ("arrival_s\n", ["t: it has no arrivals"]),
        ("[]", ["t: it has no arrivals"]),
        ("arrival_s\nnan\n1_0\ninf\n-0.5\n", [
            "t:2:1: expected a time as a number, got nan",
            "t:3:1: expected a time as a number, got '1_0'",
            "t:4:1: expected a time as a number, got inf",
            "t:5:1: a time below 0: -0.5",
        ]),
        ("x,arrival_s\n1,2\n\n1,  1\n\"a\",0\n", [
            "t:4:5: 1 follows 2: the times must be in order", "t:5: 0 follows 2: the times must be in order",
        ]),
        (b"arrival_s\n1\n\xff\n", ["t:3: it is not UTF-8 text from here on"]),
        ("[1,\n 2", ["t:2:3: it is not JSON: expecting ',' delimiter"]),
        ("[1,\n [2], -1, null,\n true, NaN, 1e400]", [
            "t:2:2: expected a gap as a number, got a list",
            "t:2:7: a gap below 0: -1",
            "t:2:11: expected a gap as a number, got nothing",
            "t:3:2: expected a gap as a number, got True",
            "t:3:8: expected a gap as a number, got nan",
            "t:3:13: expected a gap as a number, got inf",
        ]),
        ('{"x": 1}', ["t:1:1: expected a list of gaps, or a DISB workload with a list 'tasks'"]),
        ('{"tasks": []}', ["t:1:1: expected a list of gaps, or a DISB workload with a list 'tasks'"]),
        ('{"tasks": [{"id": 1}]}', ["t:1:12: the task has no 'load' with a 'type'"]),
        (workload({"type": "dependent"}), [
            "t:7:13: a dependent load has no times: its requests follow the answers of other tasks"
        ]),
        (workload({"type": "burst"}), ["t:7:13: unknown load 'burst'; known are trace, periodic, poisson"]),
        (workload({"type": "periodic", "frequency": 0}), ["t:8:18: expected a 'frequency' above 0, got 0"]),
        (workload({"type": "poisson"}), ["t:6:12: expected a 'frequency' above 0, got nothing"]),
        (workload({"type": "poisson", "frequency": 1}, "x"), ["t:2:10: expected a 'time' in seconds above 0, got 'x'"]),
        (workload({"type": "trace", "trace": [1, 3, 2]}), ["t:11:6: 2 follows 3: the times must be in order"]),
        (workload({"type": "trace"}), ["t:6:12: the load has no list 'trace' of times in milliseconds"]),
        (workload({"type": "trace", "trace": [9000]}), ["t: it has no arrivals"]),
        (workload({"type": "periodic", "frequency": 1e6}), ["t:8:18: more than 1,000,000 arrivals"]),
    ],
)  # fmt: skip
def test_mistakes_have_a_place(tmp_path: Path, content: str | bytes, problems: list[str]) -> None:
    assert list(read(tmp_path, content).problems) == problems


def test_a_missing_file_is_one_problem(tmp_path: Path) -> None:
    assert read_trace(tmp_path / "gone", "gone").problems == ("gone: it cannot be read: no such file or directory",)


def test_tasks_are_chosen_by_their_ids(tmp_path: Path) -> None:
    content = json.dumps(
        {"tasks": [{"id": name, "load": {"type": "trace", "trace": [at]}} for name, at in (("vgg", 1), ("bert", 2))]}
    )
    assert read(tmp_path, content, "bert").arrivals_s == [0.002]
    assert read(tmp_path, content).problems == ("t: it has 2 tasks; choose one with `task:`: vgg, bert",)
    assert read(tmp_path, content, "bret").problems == ("t: it has no task 'bret'; did you mean 'bert'?",)
    assert read(tmp_path, "[1]", "x").problems == ("t: it has no tasks, so there is no task 'x'",)


def test_too_many_arrivals_and_too_many_mistakes_end_the_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(read(tmp_path, "arrival_s\n" + "x\n" * 1000).problems) == 10
    monkeypatch.setattr(request_trace, "MOST_ARRIVALS", 3)
    assert read(tmp_path, "arrival_s\n1\n2\n3\n").problems == ()
    assert read(tmp_path, "arrival_s\n1\n2\n3\n4\n").problems == ("t:5:1: more than 3 arrivals",)


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=3),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=2), each, max_size=3),
)


@given(VALUES)
def test_a_place_is_that_of_its_value(value: object) -> None:
    """If it failed, a message would send its reader to the wrong line."""
    reading = request_trace._Reading("t", text=json.dumps([["x", {'"\n': 1, "k": value}], value], indent=2))
    for steps in ((0, 1, "k"), (1,)):
        line, column = map(int, reading._place(*steps).removeprefix(":").split(":"))
        index = sum(len(each) + 1 for each in reading.text.split("\n")[: line - 1]) + column - 1
        found, _ = json.JSONDecoder().raw_decode(reading.text, index)
        assert json.dumps(found) == json.dumps(value)


def test_the_loads_of_disb() -> None:
    real = data("disb/workload_REAL.json")
    found = read_trace(real, "real", "vgg19_rt")
    assert found.problems == () and len(found.arrivals_s) == 560
    assert (found.arrivals_s[0], found.arrivals_s[-1]) == pytest.approx((0.009, 29.259))
    cut = read_trace(real, "real", "resnet152_rt").arrivals_s
    assert len(cut) == 367 and cut[-1] < 38, "requests after the workload's end do not come"
    for name in "AC":
        periodic = read_trace(data(f"disb/workload_{name}.json"), name, "vgg19_rt").arrivals_s
        assert len(periodic) == 6000 and periodic[100] == pytest.approx(1.0)
    [problem] = read_trace(data("disb/workload_B.json"), "B", "vgg19_rt").problems
    assert problem.startswith("B:9:25: a continuous load has no times")


def test_the_gaps_of_orion() -> None:
    path = data("orion/inter_arrival_times.json")
    gaps_s = json.loads(path.read_text())
    found = read_trace(path, "orion")
    assert found.problems == () and len(found.arrivals_s) == len(gaps_s) == 6240
    assert found.arrivals_s[-1] == pytest.approx(sum(gaps_s))
    assert all(one <= other for one, other in pairwise(found.arrivals_s))
