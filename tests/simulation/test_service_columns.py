"""Columns of services in a trace: read back as written, and each mistake with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.base.service import RequestSource, ServiceSpec
from ecoshare.simulation.traces import own
from ecoshare.simulation.traces.any_trace import read
from ecoshare.simulation.traces.job_trace import AnswerTime, Phase, Trace, TraceJob, in_order
from ecoshare.simulation.traces.own import SERVICE_COLUMNS
from tests.simulation.trace_files import mistakes, written

HEADER = ",".join((*own.COLUMNS, *SERVICE_COLUMNS))
CELLS = ("0.05", "1 2 4", "9", "40", "", "", "7", "3", "0.002", "0.001", "0.0003", "0.1")
GOOD = dict(zip(SERVICE_COLUMNS, CELLS, strict=True))


def row(**cells: str) -> str:
    return "s,s,0,,1,1,0,,,,1,," + ",".join({**GOOD, **cells}.values())


def test_services_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    arrivals = tmp_path / "day.txt"
    arrivals.write_text("0.5\n0.75\n")
    answer = AnswerTime(0.002, 0.0005, 0.0003)
    sources = [
        RequestSource(rate_per_s=1 / 3, seed=4),
        RequestSource(clients=3, count=50),
        RequestSource(arrivals=str(arrivals)),
    ]
    jobs = [
        TraceJob(
            f"s{number}",
            "s",
            float(number),
            (Phase(1, answer.mean_s(1)),),
            service=ServiceSpec(0.05, (1, 2, 8), 17, source),
            answer=answer,
            spread=0.1,
        )
        for number, source in enumerate(sources)
    ]
    jobs.append(TraceJob("t", "t", 0.0, (Phase(5, 0.1),), spread=0.25))
    own.write(Trace("here", "invented", in_order(jobs), ""), tmp_path / "own.csv")
    assert read(tmp_path / "own.csv").jobs == in_order(jobs)


def test_a_trace_without_services_has_no_such_columns(tmp_path: Path) -> None:
    own.write(Trace("here", "invented", (TraceJob("t", "t", 0.0, (Phase(5, 0.1),)),), ""), tmp_path / "own.csv")
    assert (tmp_path / "own.csv").read_text().splitlines()[0] == ",".join(own.COLUMNS)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"p99_s": ""}, "batch: a service has a target, and the column p99_s is empty"),
        ({"p99_s": "0.001"}, "takes 0.003 s alone, more than its target of 0.001 s"),
        ({"p99_s": "0"}, "p99_s: expected a positive number"),
        ({"batch": "0 1"}, "batch: expected batch sizes"),
        ({"batch": "2 1"}, "batch: expected batch sizes"),
        ({"clients": "2"}, "clients: requests come from one of"),
        ({"rate_per_s": ""}, "rate_per_s: requests come from one of"),
        ({"rate_per_s": "-1"}, "rate_per_s: expected a positive number"),
        ({"rate_per_s": "", "arrivals": "none.txt"}, "arrivals: cannot read"),
        ({"fixed_s": "", "each_s": ""}, "fixed_s: the time of a batch"),
        ({"queue": "0"}, "queue: expected a whole number of 1 or more"),
        ({"spread": "-1"}, "spread: expected a number of 0 or more"),
    ],
)
def test_a_mistake_has_its_place(tmp_path: Path, cells: dict[str, str], words: str) -> None:
    found = mistakes(written(tmp_path, f"{HEADER}\n{row(**cells)}\n"))
    assert any(words in f"{each.where}: {each.what}" for each in found), found
    assert all(each.line == 2 and each.column > 1 for each in found)


def test_arrivals_that_are_unsorted_are_refused(tmp_path: Path) -> None:
    (tmp_path / "day.txt").write_text("2\n1\n")
    found = mistakes(written(tmp_path, f"{HEADER}\n{row(rate_per_s='', arrivals='day.txt')}\n"))
    assert any("sort the arrivals" in each.what for each in found)


def test_all_columns_are_there_or_none(tmp_path: Path) -> None:
    found = mistakes(written(tmp_path, f"{HEADER.removesuffix(',spread')}\n{row().rpartition(',')[0]}\n"))
    assert any("a trace with services has a column 'spread'" in each.what for each in found)
