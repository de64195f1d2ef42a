"""Trace of a job's iterations and turns."""

from __future__ import annotations

import itertools
import os
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.lane.trace import Kind, Mark, Tracer, columns, read
from tests.runtime.running import run, slow_steps


def test_what_is_marked_is_read_back_and_a_cut_mark_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    trace = Tracer(path, opened_s=100.0)
    trace.turn(Kind.TURN_BEGINS, 101.0)
    trace.iteration(Kind.TRAIN, 102.5)
    trace.turn(Kind.TURN_ENDS, 103.0)
    marks = [Mark(Kind.TURN_BEGINS, 1.0), Mark(Kind.TRAIN, 2.5), Mark(Kind.TURN_ENDS, 3.0)]
    assert read(path) == marks
    os.truncate(path, path.stat().st_size - 1)
    assert read(path) == marks[:-1]
    assert read(tmp_path / "none") == []


@given(
    st.lists(st.tuples(st.integers(0, 5), st.floats(0.0, 9.0) | st.floats()), max_size=20).map(sorted) | st.binary(),
    st.binary(max_size=8),
)
def test_columns_are_the_marks_also_of_a_damaged_trace(content: list[tuple[int, float]] | bytes, rest: bytes) -> None:
    whole = content if isinstance(content, bytes) else b"".join(struct.pack("<Bd", *mark) for mark in content)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.bin"
        path.write_bytes(whole + rest)
        kinds, times_s = columns(path)
        assert list(zip(kinds, times_s, strict=True)) == read(path)
        assert len(columns(path.with_name("none"))[0]) == 0


def test_a_trace_that_cannot_be_written_stops_no_job(tmp_path: Path) -> None:
    trace = Tracer(tmp_path / "no" / "folder", opened_s=0.0)
    trace.turn(Kind.TURN_BEGINS, 1.0)
    trace.turn(Kind.TURN_ENDS, 2.0)


@pytest.mark.slow
def test_every_iteration_of_a_run_is_in_the_traces_and_turns_of_a_lane_do_not_overlap(tmp_path: Path) -> None:
    done = run(tmp_path, slow_steps("a", 60), slow_steps("b", 60))
    turns = []
    for name in ("a", "b"):
        marks = read(done.folder / "jobs" / name / "trace.bin")
        assert sum(mark.kind is Kind.TRAIN for mark in marks) == 60
        times = [mark.at_s for mark in marks]
        assert times == sorted(times) and times[-1] <= done.job(name)["finish_s"]
        begins = [mark.at_s for mark in marks if mark.kind is Kind.TURN_BEGINS]
        ends = [mark.at_s for mark in marks if mark.kind is Kind.TURN_ENDS]
        assert len(begins) == len(ends) == done.job(name)["handovers"]
        turns += list(zip(begins, ends, strict=True))
    turns.sort()
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(turns))
