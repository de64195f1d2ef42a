from __future__ import annotations

import json
import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

import ecoshare
from ecoshare.lane.service_job import RecordedCalls, ServiceTurn
from ecoshare.lane.serving import request_intervals
from ecoshare.lane.serving.request_intervals import RequestInterval, read, read_from, total
from ecoshare.lane.serving.request_record import LATENCY_BOUNDS_S, RequestRecorder
from tests.warm import wait_for

pytest.importorskip("hdrh", reason="hdrhistogram is not installed")


def record(recorder: RequestRecorder, latencies_s: np.ndarray) -> None:
    for latency_s in latencies_s:
        recorder.arrived(1)
        recorder.answered(0.0, 1.0, float(latency_s))
    recorder.write()


def test_percentiles_over_all_intervals_are_those_of_all_latencies(tmp_path: Path) -> None:
    latencies_s = np.random.default_rng(5).lognormal(-4.0, 1.5, 20_011)
    recorder = RequestRecorder(tmp_path / "requests.jsonl")
    for part in np.array_split(latencies_s, [1, 50, 3_000]):
        record(recorder, part)
    intervals = read(tmp_path / "requests.jsonl")
    assert [each.answered for each in intervals] == [1, 49, 2_950, 17_011]
    totals = total(intervals)
    exact_s = np.percentile(latencies_s, [50, 90, 99, 99.9], method="inverted_cdf")
    found_s = [totals.p50_s, totals.p90_s, totals.p99_s, totals.p999_s]
    assert found_s == pytest.approx(exact_s.tolist(), rel=1e-3)
    assert totals.mean_s == pytest.approx(latencies_s.mean(), rel=1e-3)
    assert totals.max_s == pytest.approx(latencies_s.max(), rel=1e-3)
    assert totals.late == int((latencies_s > 1.0).sum()) > 0
    assert (totals.arrived, totals.answered, totals.failed) == (20_011, 20_011, 0)


@pytest.mark.slow
def test_calls_of_a_server_that_is_idle_afterwards_are_written_within_a_second(tmp_path: Path) -> None:
    """The displays lacked the last second until the next call came: 213 of 300 requests."""
    turn = cast(ServiceTurn, SimpleNamespace(begin=lambda _due_s: None, end=lambda: None))
    calls = RecordedCalls(turn, 0.1, str(tmp_path / "requests.jsonl"), 0.0)
    for _ in range(3):
        calls.begin()
        calls.end()
    wait_for((tmp_path / "requests.jsonl").exists)
    assert sum(each.answered for each in read(tmp_path / "requests.jsonl")) == 3


def test_the_buckets_of_an_interval_count_its_latencies(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path / "requests.jsonl")
    record(recorder, np.array([0.0001, 0.001, 0.0011, 0.3, 99.0]))
    record(recorder, np.array([0.02]))
    first, second = read(tmp_path / "requests.jsonl")
    assert first.buckets == {0: 2, 1: 1, LATENCY_BOUNDS_S.index(0.5): 1, len(LATENCY_BOUNDS_S): 1}
    assert first.latency_s == pytest.approx(99.3022)
    assert second.buckets == {LATENCY_BOUNDS_S.index(0.025): 1} and second.latency_s == pytest.approx(0.02)


@pytest.mark.parametrize("wrong", [{"buckets": {"14": 1}}, {"buckets": {"-1": 1}}, {"latency_s": "x"}])
def test_a_line_with_damaged_buckets_is_left_out(wrong: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    record(RequestRecorder(path), np.array([0.01]))
    line = json.loads(path.read_bytes())
    earlier = {name: value for name, value in line.items() if name not in ("buckets", "latency_s")}
    path.write_text("".join(json.dumps(each) + "\n" for each in (earlier, line | wrong)))
    (found,) = read(path)
    assert found.buckets == {}, "a record of an earlier version has none"


def test_latencies_outside_of_the_range_are_its_ends(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path / "requests.jsonl")
    record(recorder, np.array([0.0, 1e5]))
    totals = total(read(tmp_path / "requests.jsonl"))
    assert totals.p50_s == 1e-6
    assert totals.max_s == pytest.approx(3600.0, rel=1e-3)


def test_a_record_that_was_cut_or_damaged_loses_that_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    recorder = RequestRecorder(path)
    for _ in range(3):
        record(recorder, np.array([0.01]))
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = [b"[]\n", b"{}\n", b"\xff\n", lines[0].replace(b"1", b"-1"), b"[" * 100_000 + b"\n"]
    path.write_bytes(lines[0] + b"".join(damaged) + lines[1] + lines[2][:-20])
    first, known = read_from(path, 0)
    assert [each.answered for each in first] == [1, 1]
    with path.open("ab") as file:
        file.write(lines[2][-20:])
    assert [each.answered for each in read_from(path, known)[0]] == [1], "the rest is read once it is whole"
    assert len(read(path)) == 3
    assert read(tmp_path / "none.jsonl") == []


@pytest.mark.parametrize("latencies", ["", "x", "SElTVA==", "HISTFAAAAA"])
def test_a_damaged_histogram_counts_no_latencies(latencies: str) -> None:
    totals = total([RequestInterval(0.0, 1.0, 3, 2, 1, 0, 0, 0, {1: 2}, 1, latencies)])
    assert (totals.arrived, totals.answered, totals.failed) == (3, 2, 1)
    assert math.isnan(totals.p99_s) and math.isnan(totals.mean_s)
    assert total([]).arrived == 0


def test_a_histogram_with_other_settings_is_left_out() -> None:
    """If it failed, a damaged record could make the controller allocate much memory."""
    from hdrh.histogram import HdrHistogram

    other = HdrHistogram(1, 2**62, 5)
    other.record_value(3)
    assert request_intervals._decoded(other.encode().decode()) is None


def test_a_server_writes_what_became_of_each_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "requests.jsonl"
    monkeypatch.setattr(ecoshare, "_requests_path", str(path))

    def handler(requests: list[float]) -> list[float]:
        time.sleep(max(requests))
        return [1 / each for each in requests]

    before_s = time.monotonic()
    monkeypatch.setattr(ecoshare, "_opened_s", before_s)
    with ecoshare.serve(handler, batch=(1, 2), p99="10 s", queue=4) as server:
        slow = server.submit(0.3)
        while not slow.running():
            time.sleep(0.001)
        others = [server.submit(each) for each in (0.0, 0.001, 0.001, 0.001)]
        with pytest.raises(ecoshare.QueueFull):
            server.submit(0.001)
        others[3].cancel()
        late = server.submit(0.001, within_s=0.001)
        others += [slow, late]
        while not all(each.done() for each in others):
            time.sleep(0.001)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(0.0 <= each["from_s"] <= each["at_s"] <= time.monotonic() - before_s for each in lines)
    totals = total(read(path))
    assert (totals.arrived, totals.refused, totals.cancelled) == (7, 1, 1)
    assert (totals.answered, totals.failed, totals.late) == (4, 1, 1)
    assert totals.longest_queue == 4
    assert totals.batches == {1: 3, 2: 2}, "alone: the slow one, and the two of the batch that failed"
    assert 0.3 <= totals.max_s < 5.0


def test_a_record_that_cannot_be_written_stops_no_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ecoshare, "_requests_path", str(tmp_path / "no folder" / "requests.jsonl"))
    with ecoshare.serve(list) as server:
        assert server.submit(4).result(20) == 4


def test_without_the_library_the_record_has_counts_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "hdrh.histogram", None)
    recorder = RequestRecorder(tmp_path / "requests.jsonl")
    record(recorder, np.array([0.5]))
    (interval,) = read(tmp_path / "requests.jsonl")
    assert (interval.answered, interval.latencies) == (1, "")
