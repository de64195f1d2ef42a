"""Benchmarks of services: the ways to run them, and their figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ecoshare.lane.serving.request_intervals import read, total
from ecoshare.lane.serving.request_record import RequestRecorder
from scripts.bench.benchmarking import Figure
from scripts.bench.gpu import services
from scripts.bench.services_beside import back_after_s
from scripts.bench.services_ways import Ran, Served, Service, kept_share, plain, poisson, shared

SUMMARY: dict[str, Any] = {
    "jobs": [
        {"name": "service", "energy": None, "service": {"energy_per_request_j": None}},
        {"name": "training", "handovers": 7},
    ]
}


def ran(folder: Path, latency_s: float) -> Ran:
    """A way in which each of 100 answers took this long beside 100 iterations a second."""
    (path := folder / "requests.jsonl").unlink(missing_ok=True)
    recorder = RequestRecorder(path)
    for _ in range(100):
        recorder.arrived(1)
        recorder.answered(0.0, 0.05, latency_s)
    recorder.write()
    own = Served(read(path), {"0": ["a"], "1": ["b"]}, 0.0, 10.0, 1.0)
    return Ran({"service": own}, [0.01 * each for each in range(1, 1001)], ["x"] * 1000, 0, SUMMARY)


def missed(figures: list[Figure]) -> list[str]:
    return [each.name.rpartition(": ")[2] for each in figures if each.met is False]


@pytest.mark.nightly
def test_each_fault_of_a_service_on_a_gpu_misses_its_bound(tmp_path: Path) -> None:
    good = ran(tmp_path, 0.01)
    assert not missed(services.compared(good, good, good))
    others = replace(good, losses=["x", "y", *good.losses[2:]])
    assert missed(services.compared(good, good, others)) == ["losses that differ from those alone"]
    own = good.services["service"]
    wrong = replace(good, services={"service": replace(own, answers={"0": ["a"], "1": ["b", "c"]})})
    assert missed(services.compared(good, good, wrong)) == ["answers that differ from those alone"]
    lost = [replace(each, answered=each.answered - 2) for each in own.intervals]
    less = replace(good, services={"service": replace(own, intervals=lost)})
    assert missed(services.compared(good, good, less)) == ["requests without an answer", "target kept"]
    assert missed(services.compared(good, good, ran(tmp_path, 0.06))) == ["target kept", "p99 - alone - iteration"]


def test_the_target_is_kept_by_answers_in_time(tmp_path: Path) -> None:
    for latency_s, kept in ((0.04, 1.0), (0.06, 0.0)):
        assert kept_share(total(ran(tmp_path, latency_s).services["service"].intervals)) == kept


@pytest.mark.parametrize(("slow_s", "back_s"), [(0.0, 0.0), (0.5, 0.4), (10.0, 4.0)])
def test_training_is_back_when_a_second_has_its_speed_of_before(slow_s: float, back_s: float) -> None:
    """The load lasts from 5 s to 10 s; the training is at half its speed for a while longer."""
    ends_s = [0.01 * each for each in range(1500)]
    slow = [each for number, each in enumerate(ends_s) if not 5.0 < each <= 10.0 + slow_s or number % 2]
    assert back_after_s(Ran(ends_s=slow), 0.0, 5.0) == pytest.approx(back_s, abs=0.11)


def test_arrivals_are_drawn_again_alike_and_in_order() -> None:
    times_s = poisson(100.0, 10.0, 3, from_s=5.0)
    assert times_s == sorted(times_s) == poisson(100.0, 10.0, 3, from_s=5.0) != poisson(100.0, 10.0, 4, from_s=5.0)
    assert times_s[0] >= 5.0 and times_s[-1] < 15.0 and 800 < len(times_s) < 1200


@pytest.mark.nightly
def test_a_job_that_fails_is_told_with_its_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"\['a.ready'\] did not come: (.|\n)*no-such"):
        plain(tmp_path / "plain", [Service("a", "mlp", [0.0], batch=("no-such",))])  # type: ignore[arg-type]


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_services_and_training_do_the_same_as_plain_processes_and_in_a_run(tmp_path: Path) -> None:
    own = [Service(kind, kind, poisson(20.0, 2.0, seed)) for seed, kind in enumerate(("mlp", "cnn", "transformer"))]
    ways = [way(tmp_path / name, own, 4) for name, way in (("plain", plain), ("run", shared))]
    common = min(len(each.losses) for each in ways)
    assert common > 20 and ways[0].losses[:common] == ways[1].losses[:common]
    for service in own:
        found = [each.services[service.name] for each in ways]
        assert found[0].answers == found[1].answers and all(len(each) == 1 for each in found[0].answers.values())
        for each in found:
            counts = total(each.intervals)
            assert counts.arrived == counts.answered == len(service.arrivals_s)
            assert 0.0 < each.load < 1.0
    assert all(each.memory_bytes > 100 << 20 for each in ways)
    assert {job["state"] for job in ways[1].summary["jobs"]} == {"completed"}


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_the_part_for_a_gpu_runs_on_the_processors(tmp_path: Path) -> None:
    found = {each.name.rpartition(": ")[2]: each for each in services.figures(tmp_path / "all", "cpu", 4, 2.0)}
    for name in ("losses that differ from those alone", "answers that differ from those alone"):
        assert found[name].met, found[name]
    joules = found["joules a request"]
    assert joules.value is not None and joules.value > 0.0 and joules.note == "modelled"
