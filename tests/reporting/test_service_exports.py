"""Services in the files for other programs: table, metrics of Prometheus, Perfetto trace."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ecoshare.metrics.families import FAMILIES
from ecoshare.reporting.exports import prometheus, table
from ecoshare.reporting.perfetto import perfetto
from tests.reporting.made_run import run
from tests.reporting.made_service import interval, with_service
from tests.reporting.test_perfetto import read

FOUND = [
    interval(20.0, [0.01, 0.02, 0.03]),
    interval(21.0, [0.004, 0.08], refused=2),
    interval(40.0, [], failed=1, cancelled=1),
]

Found = dict[str, dict[tuple[str, ...], float]]
"""Values by the name of the sample and its labels without `run`, in the order of their names."""


def samples(text: bytes) -> Found:
    """Samples of an export, which the official parser reads."""
    found: Found = defaultdict(dict)
    for family in text_string_to_metric_families(text.decode()):
        for each in family.samples:
            labels = tuple(value for name, value in sorted(each.labels.items()) if name != "run")
            assert labels not in found[each.name], "two samples of one series"
            found[each.name][labels] = each.value
    return found


def test_csv_has_what_a_service_did_and_nothing_for_other_jobs() -> None:
    data = with_service(run(jobs=2), FOUND)
    served, other = csv.DictReader(io.StringIO(table(data.summary)))
    counts = [served[f"service_{name}"] for name in ("arrived", "answered", "late", "failed", "refused", "cancelled")]
    assert counts == ["9", "5", "1", "1", "2", "1"]
    assert float(served["service_target_s"]) == 0.05 and float(served["service_mean_batch"]) == 1.0
    assert float(served["service_p50_s"]) == pytest.approx(0.02, rel=1e-3)
    assert all(value == "" for name, value in other.items() if name.startswith("service_"))


def test_the_metrics_count_requests_by_result_and_latencies_in_buckets() -> None:
    found = samples(prometheus(with_service(run(jobs=2), FOUND)))
    results = {labels[1]: value for labels, value in found["ecoshare_service_requests_total"].items()}
    assert results == {"in_time": 4, "late": 1, "failed": 1, "refused": 2, "cancelled": 1}
    buckets = {labels[0]: value for labels, value in found["ecoshare_service_latency_seconds_bucket"].items()}
    assert [buckets[le] for le in ("0.001", "0.005", "0.01", "0.025", "0.05", "0.1", "+Inf")] == [0, 1, 1, 3, 4, 5, 5]
    assert found["ecoshare_service_latency_seconds_count"] == {("job0",): 5}
    assert found["ecoshare_service_latency_seconds_sum"]["job0",] == pytest.approx(0.144, rel=1e-3)
    assert set(found["ecoshare_service_batch_requests_bucket"].values()) == {5} and buckets.keys() > {"1.0"}
    assert found["ecoshare_service_batch_requests_sum"] == {("job0",): 5}
    assert found["ecoshare_service_target_seconds"] == {("job0",): 0.05}
    assert found["ecoshare_service_target_missed_seconds_total"] == {("job0",): 0}
    assert found["ecoshare_service_queue_peak_requests"] == {("job0",): 3}


def test_every_metric_is_listed_with_its_type_and_labels_and_every_job_has_its_joules() -> None:
    data = run(jobs=2)
    text = prometheus(with_service(data, FOUND))
    listed = {each.base: each for each in FAMILIES if each.is_exported}
    families = {each.name: each for each in text_string_to_metric_families(text.decode())}
    assert families.keys() == listed.keys(), "a metric is not listed as exported, or is not exported"
    for name, family in families.items():
        assert (family.type, family.documentation) == (listed[name].type.value, listed[name].help)
        for each in family.samples:
            assert each.labels.keys() - {"le"} == {"run", *listed[name].labels}
    joules = samples(text)["ecoshare_job_energy_joules_total"]
    for job in data.summary.jobs:
        assert job.energy is not None
        assert joules[job.name, "attributed"] == pytest.approx(job.energy.value_j)


def test_a_name_with_quotes_stays_one_label() -> None:
    data = run(jobs=1)
    hostile = 'a"} 1\n\\b'
    jobs = (replace(data.summary.jobs[0], name=hostile),)
    found = samples(prometheus(replace(data, summary=replace(data.summary, jobs=jobs))))
    assert (hostile,) in found["ecoshare_job_turn_seconds_total"]


def test_perfetto_has_the_seconds_of_a_service_and_its_latencies() -> None:
    found = read(perfetto(with_service(run(jobs=2), FOUND)))
    track = found.slices["cuda:0 NVIDIA H200/services/job0"]
    assert [each.name for each in track] == ["3 answered", "2 answered, 1 late", "0 answered"]
    assert (track[1].from_ns, track[1].to_ns) == (21 * 10**9, 22 * 10**9)
    assert [each.args["unanswered"] for each in track] == [0, 2, 1]
    p99 = found.counters["cuda:0 NVIDIA H200/p99 of job0"]
    assert [at_ns for at_ns, _ in p99] == [20 * 10**9, 21 * 10**9]
    assert [value for _, value in p99] == pytest.approx([30.0, 80.0], rel=1e-3)
    assert found.counters["cuda:0 NVIDIA H200/mean batch of job0"] == [(20 * 10**9, 1.0)]


def test_seconds_of_several_processes_of_a_service_do_not_overlap() -> None:
    both = [interval(20.0, [0.01]), interval(20.4, [0.02]), interval(21.2, [0.03])]
    track = read(perfetto(with_service(run(jobs=2), both))).slices["cuda:0 NVIDIA H200/services/job0"]
    assert [each.depth for each in track] == [0, 0]
    assert track[0].to_ns == track[1].from_ns == 21_200_000_000


def test_a_run_without_services_has_no_track_for_them() -> None:
    assert not any("services" in path for path in read(perfetto(run(jobs=2))).slices)
