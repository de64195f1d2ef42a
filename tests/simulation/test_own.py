"""The trace format of ecoshare loses nothing when a trace is written and read again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.class_profile import MemoryDemand
from ecoshare.errors import UsageError
from ecoshare.simulation.traces import own
from ecoshare.simulation.traces.any_trace import read
from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob, in_order
from tests.simulation.trace_files import mistakes, written

names = st.text(st.sampled_from("abcXYZ019._-"), min_size=1, max_size=8)
times = st.floats(0.0, 1e6)
above = st.floats(1e-300, 1e3)
texts = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]) | st.sampled_from(',"; x'), min_size=1)
demands = st.builds(MemoryDemand, st.integers(0, 1 << 40), st.integers(0, 1 << 40))
phases = st.builds(Phase, st.integers(1, 10**4), above, st.none() | st.integers(1, 10**6))
trace_jobs = st.builds(
    TraceJob,
    name=names,
    job_class=texts.map(str.strip).filter(bool),
    arrival_s=times,
    phases=st.lists(phases, min_size=1, max_size=4).map(tuple),
    gpus=st.integers(1, 10_000),
    priority=st.integers(-(10**6), 10**6),
    memory=st.none() | demands,
    share=st.none() | st.floats(1e-3, 1.0),
    startup_s=times,
    launch_s=st.none() | times,
    skew=st.none() | st.floats(0.0, 1.0),
    announced=st.booleans(),
)


@pytest.mark.slow
@given(st.lists(trace_jobs, min_size=1, max_size=8, unique_by=lambda job: job.name))
def test_what_is_written_is_read_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, jobs: list[TraceJob]
) -> None:
    path = tmp_path_factory.getbasetemp() / "own.csv"
    trace = Trace("here", "invented", in_order(jobs), "")
    own.write(trace, path)
    again = read(path)
    assert again.jobs == trace.jobs and again.kind == "ecoshare"
    assert [job.line for job in again.jobs] == list(range(2, 2 + len(jobs)))


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "5",
        "5 x",
        "5 x 1 / 0",
        "5 x 1 / 2.5",
        "x 2",
        "0 x 1",
        "2.5 x 1",
        "5 x 0",
        "5 x nan",
        "5 x 1; ",
        "5 x 1, 2 x 3",
    ],
)
def test_phases_that_are_none_are_told(tmp_path: Path, wrong: str) -> None:
    (mistake,) = mistakes(written(tmp_path, ",".join(own.COLUMNS) + f'\na,b,0,,0,1,0,,,,1,"{wrong}"\n'))
    assert mistake.where == "phases" and "such as '1000 x 0.25'" in mistake.what


@pytest.mark.parametrize("wrong", ["0", "1.5", "-1", "all"])
def test_a_part_of_a_gpu_is_above_0_and_at_most_1(tmp_path: Path, wrong: str) -> None:
    rows = f"a,b,0,,0,1,0,,,,1,1 x 1,\nc,b,0,,0,1,0,,,,1,1 x 1,{wrong}\n"
    (mistake,) = mistakes(written(tmp_path, ",".join([*own.COLUMNS, own.SHARE]) + "\n" + rows))
    assert (mistake.line, mistake.where) == (3, "share")


@pytest.mark.parametrize(
    ("cells", "where"),
    [
        ("a,b,0,,0,1,0,5,,,1,1 x 1", "ephemeral_bytes"),
        ("a,b,0,,0,1,0,,5,,1,1 x 1", "persistent_bytes"),
        ("a,b,0,,0,1,0,,,1.5,1,1 x 1", "skew"),
        ("a,b,0,,-1,1,0,,,,1,1 x 1", "startup_s"),
        ("a,b,0,,0,1,0.5,,,,1,1 x 1", "priority"),
    ],
)
def test_own_cells_that_are_wrong_are_told(tmp_path: Path, cells: str, where: str) -> None:
    (mistake,) = mistakes(written(tmp_path, ",".join(own.COLUMNS) + "\n" + cells + "\n"))
    assert mistake.where == where


def test_a_trace_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        own.write(Trace("", "", (), ""), tmp_path / "none" / "t.csv")
