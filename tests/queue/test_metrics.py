"""Metrics of a queue: Prometheus can read them, and they are what `status` and the jobs say."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from ecoshare.metrics.families import FAMILIES, MetricFamily
from tests.queue.queues import TRAINS, Served, served_alone
from tests.queue.scraping import OPEN_METRICS, Scrape, scrape
from tests.warm import wait_for

pytestmark = pytest.mark.slow

FLAKY = """
import os, sys, time, torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters())
for _ in range(20):
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.05)
sys.exit(0 if os.environ["ECOSHARE_ATTEMPT"] == "2" else 3)
"""
SERVES = "import ecoshare\necoshare.serve(lambda requests: requests).run()\n"
SERVICE = """
version: 1
jobs:
  - {name: serves, script: serves.py, service: {p99: 1 s, batch: [1, 2], requests: {rate: 20}}}
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("metrics")
    for name, text in (("trains", TRAINS), ("flaky", FLAKY), ("serves", SERVES)):
        (folder / f"{name}.py").write_text(text)
    (folder / "service.yaml").write_text(SERVICE)
    with served_alone(folder) as found:
        yield found


def until(up: Served, seen: str, more_than: float = 0.0, **labels: str) -> Scrape:
    """First scrape in which a sample is there, and above a value."""
    last: list[Scrape] = []

    def is_seen() -> bool:
        last.append(scrape(up.home))
        return any(value > more_than for value in last[-1].values(seen, **labels))

    wait_for(is_seen, otherwise=lambda: up.process.stderr)
    return last[-1]


def check(found: Scrape, is_open: bool) -> None:
    listed: dict[str, MetricFamily] = {each.base: each for each in FAMILIES if each.is_live}
    shown = found.families if is_open else {name.removesuffix("_info"): each for name, each in found.families.items()}
    assert shown.keys() <= listed.keys()
    for name, family in shown.items():
        expected = listed[name]
        kind = "gauge" if expected.type.value == "info" and not is_open else expected.type.value
        assert (family.type, family.documentation) == (kind, expected.help), name
        assert family.unit == (expected.unit if is_open else ""), name
        for each in family.samples:
            assert each.labels.keys() - {"le"} == {"queue", *expected.labels}, each
            assert not {"job", "instance"} & each.labels.keys(), "Prometheus would rename them"


def test_both_formats_have_the_listed_types_units_and_labels(up: Served) -> None:
    up.lines("submit", "trains.py", "--name", "trains")
    up.lines("submit", "service.yaml")
    until(up, "ecoshare_service_latency_seconds_count", name="serves")
    found = until(up, "ecoshare_job_energy_joules_total", name="trains")
    check(found, is_open=True)
    plain = scrape(up.home, "text/plain;version=0.0.4")
    check(plain, is_open=False)
    assert {each.name for each in plain.families.values()} >= {"ecoshare_turn_wait_seconds", "ecoshare_queue_info"}
    if (promtool := shutil.which("promtool")) is not None:
        done = subprocess.run([promtool, "check", "metrics"], input=plain.text, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_service_counts_its_requests_and_latencies(up: Served) -> None:
    found = until(up, "ecoshare_service_requests_total", 5.0, name="serves", result="in_time")
    answered = sum(found.value("ecoshare_service_requests_total", result=each) for each in ("in_time", "late"))
    assert found.value("ecoshare_service_latency_seconds_count") == answered
    assert found.value("ecoshare_service_latency_seconds_bucket", le="+Inf") == answered
    assert 0.0 < found.value("ecoshare_service_latency_seconds_sum") < answered
    assert found.value("ecoshare_service_target_seconds") == 1.0
    assert found.value("ecoshare_service_batch_requests_sum") >= answered
    up.ask("cancel", "serves", "--now")
    up.ask("wait", "serves")


def test_values_are_those_of_the_status(up: Served) -> None:
    up.lines("submit", "trains.py", "--name", "second")
    until(up, "ecoshare_job_energy_joules_total", name="second")
    until(up, "ecoshare_turn_wait_seconds_count", 4.0)
    before, found, after = up.queue.status(0), scrape(up.home), up.queue.status(0)
    for name in ("trains", "second"):
        (early,), (late,) = ([job for job in each.jobs if job.name == name] for each in (before, after))
        done = found.value("ecoshare_job_iterations_total", name=name, kind="train")
        assert early.iterations <= done <= late.iterations
        joules = found.value("ecoshare_job_energy_joules_total", name=name)
        assert early.energy_j is not None and late.energy_j is not None
        assert early.energy_j * 0.99 <= joules <= late.energy_j * 1.01
        assert found.value("ecoshare_job_turn_seconds_total", name=name) > 0.0
    (early_device,), (late_device,) = before.devices, after.devices
    assert early_device.energy_j is not None and late_device.energy_j is not None
    energy_j = found.value("ecoshare_device_energy_joules_total", device="cpu")
    assert early_device.energy_j <= energy_j <= late_device.energy_j * 1.01
    jobs_j = found.value("ecoshare_device_jobs_energy_joules_total", device="cpu")
    assert sum(found.values("ecoshare_job_energy_joules_total")) <= jobs_j + 1e-6 and jobs_j <= energy_j
    running = sum(job.state == "running" for job in after.jobs)
    assert found.value("ecoshare_jobs", state="running") == running == 2
    assert found.value("ecoshare_lane_jobs", lane="0") == len(after.devices[0].lanes[0].jobs)
    assert sum(found.values("ecoshare_job_has_turn")) <= 1.0
    waits = found.value("ecoshare_turn_wait_seconds_count")
    assert found.value("ecoshare_turn_wait_seconds_bucket", le="+Inf") == waits
    assert found.value("ecoshare_turn_wait_seconds_sum") > 0.0


def test_jobs_that_wait_are_counted_by_state_alone(up: Served) -> None:
    before = scrape(up.home)
    up.waits("blocks", "--after", "trains")
    up.waits("held", "--after", "trains")
    up.ask("hold", "held")
    found = scrape(up.home)
    assert found.value("ecoshare_jobs", state="arriving") == before.value("ecoshare_jobs", state="arriving") + 1
    assert found.value("ecoshare_jobs", state="held") == before.value("ecoshare_jobs", state="held") + 1
    assert found.names == before.names == {"trains", "second"}
    count = [sum(len(each.samples) for each in one.families.values()) for one in (before, found)]
    assert count[0] == count[1], "a job that waits has samples"
    states = [job.state for job in up.queue.status(0).jobs]
    for state in ("arriving", "held", "running"):
        assert found.value("ecoshare_jobs", state=state) == states.count(state)


def falls(earlier: Scrape, later: Scrape) -> list[str]:
    """Counters that have fallen, of the series that both scrapes have."""
    return [
        f"{each.name} {each.labels}"
        for family in earlier.families.values()
        for each in family.samples
        if family.type in ("counter", "histogram")
        if any(value < each.value for value in later.values(each.name, **each.labels))
    ]


def test_an_ended_job_leaves_and_the_sums_stay(up: Served) -> None:
    before = scrape(up.home)
    up.ask("cancel", "held", "blocks", "second", "--now")
    up.ask("wait", "second")
    after = scrape(up.home)
    assert after.names == {"trains"}
    assert after.value("ecoshare_jobs_ended_total", kind="job", state="cancelled") == (
        before.value("ecoshare_jobs_ended_total", kind="job", state="cancelled") + 3
    )
    assert not falls(before, after)
    sums = {name for name, family in before.families.items() if "name" not in family.samples[0].labels}
    assert sums <= after.families.keys()
    done = after.value("ecoshare_device_iterations_total", kind="train")
    own = after.value("ecoshare_job_iterations_total", name="trains", kind="train")
    assert done > own, "the iterations of the job that has ended are lost"


def test_the_work_of_all_attempts_counts_and_no_counter_falls_at_a_restart(up: Served) -> None:
    before = scrape(up.home)
    up.queue.submit([up.folder / "flaky.py"], [], options={"name": "flaky", "retries": 2})
    seen, own_iterations = [before], list[float]()

    def is_over() -> bool:
        seen.append(scrape(up.home))
        own_iterations.extend(seen[-1].values("ecoshare_job_iterations_total", name="flaky", kind="train"))
        assert not falls(seen[-2], seen[-1])
        return up.queue.job("flaky").state == "completed"

    wait_for(is_over, otherwise=lambda: up.process.stderr)
    after = scrape(up.home)
    assert own_iterations == sorted(own_iterations) and own_iterations[-1] > 20, "the first attempt does not count"

    def rise(sample: str, /, **labels: str) -> float:
        return after.value(sample, **labels) - before.value(sample, **labels)

    assert rise("ecoshare_restarts_total", outcome="failed") == 1.0
    assert rise("ecoshare_attempts_ended_total", outcome="failed") == 1.0
    assert rise("ecoshare_attempts_ended_total", outcome="completed") == 1.0
    assert rise("ecoshare_jobs_ended_total", kind="job", state="completed") == 1.0
    own = rise("ecoshare_job_iterations_total", name="trains", kind="train")
    assert rise("ecoshare_device_iterations_total", kind="train") >= own + 40, "two attempts of 20 iterations"


def test_trials_and_sweeps_are_counted_as_such(up: Served) -> None:
    (up.folder / "quick.py").write_text("import time; time.sleep(0.1)\n")
    (up.folder / "sweep.yaml").write_text(
        'version: 1\njobs: [{name: sweep, script: quick.py, args: ["{x}"], sweep: {grid: {x: [1, 2]}}}]\n'
    )
    before = scrape(up.home)
    up.lines("submit", "sweep.yaml", "--wait")
    after = scrape(up.home)
    for kind, count in (("trial", 2), ("sweep", 1), ("job", 0)):
        ended = (each.value("ecoshare_jobs_ended_total", kind=kind, state="completed") for each in (after, before))
        assert next(ended) - next(ended) == count, kind
    assert after.value("ecoshare_open_sweeps") == 0.0


def test_jobs_that_are_cancelled_together_count_once(up: Served) -> None:
    before = scrape(up.home)
    (up.folder / "never.yaml").write_text(
        "version: 1\njobs:\n  - {name: late, script: quick.py, arrival: 1 h}\n"
        "  - {name: later, script: quick.py, after: [late]}\n"
    )
    up.lines("submit", "never.yaml")
    up.lines("cancel", "late", "later", "late")
    up.queue.wait("late", "later")
    ended = [
        each.value("ecoshare_jobs_ended_total", kind="job", state="cancelled") for each in (before, scrape(up.home))
    ]
    assert ended[1] - ended[0] == 2


def test_the_media_type_is_the_one_that_is_asked_for(up: Served) -> None:
    assert "# EOF" in scrape(up.home, OPEN_METRICS).text
    assert "# EOF" not in scrape(up.home, "*/*").text
