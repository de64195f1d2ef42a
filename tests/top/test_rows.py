"""Rows of devices and jobs at several widths, from documents of a queue."""

from __future__ import annotations

import pytest

from ecoshare.queue.queue_documents import JobStatus, QueueStatus
from ecoshare.record.run_view import DeviceStatus, LaneStatus, ServiceStatus
from ecoshare.record.samples import AttemptProgress, Sample
from ecoshare.reporting.tables.text_table import laid_out
from ecoshare.top.jobs_table import device_rows, job_columns
from ecoshare.top.top_view import MOST_WAITING, TopView

GIB = 1 << 30
NOW_S = 1000.0


def gpu(number: int, *lanes: LaneStatus, **more: object) -> DeviceStatus:
    fields = {
        "name": f"cuda:{number}",
        "described": "NVIDIA H100 80GB HBM3",
        "lanes": list(lanes),
        "power_w": 402.4,
        "energy_j": 2.61e6,
        "energy_source": "measured",
        "gpu_clock_mhz": 1755.0,
        "memory_clock_mhz": 2619.0,
        "temperature_c": 61.0,
        "busy": 0.87,
        "memory_bytes": 42 * GIB,
        "memory_total_bytes": 79 * GIB,
        **more,
    }
    return DeviceStatus.model_validate(fields)


def job(name: str, state: str = "running", **more: object) -> JobStatus:
    return JobStatus.model_validate({"name": name, "state": state, "submitted_unix_s": NOW_S - 60.0, **more})


def view(*jobs: JobStatus, devices: tuple[DeviceStatus, ...] = ()) -> TopView:
    status = QueueStatus(
        name="lab",
        run="/runs/1",
        process=1,
        opened_unix_s=0.0,
        objective="energy",
        policy="energy",
        devices=list(devices),
        ending="",
        warm=True,
        jobs=list(jobs),
    )
    return TopView.of_queue(status, NOW_S)


def test_a_gpu_has_watts_clocks_memory_and_turns_in_80_columns() -> None:
    lanes = (LaneStatus(number=0, jobs=["train", "evaluate"], holder="train"), LaneStatus(number=1, jobs=[]))
    rows = [row.plain for row in device_rows([gpu(0, *lanes)], 78)]
    assert rows[0].split() == ["device", "power", "MHz", "°C", "busy", "memory", "joules", "turn"]
    assert rows[1].split("  ")[0] == "cuda:0" and "402 W" in rows[1] and "1755/2619" in rows[1]
    assert "42 / 79 GiB" in rows[1] and rows[1].endswith("▶ train + evaluate") and rows[2].strip() == "idle"
    assert "NVIDIA H100 80GB HBM3" in device_rows([gpu(0, *lanes)], 118)[1].plain


def test_memory_on_processors_is_that_of_the_jobs() -> None:
    """Else a view would show the memory of the machine alone, with no word on what is left of it."""
    a, b, unread = (AttemptProgress(0, 0.0, 0, 0, 0.0, size) for size in (GIB, 2 * GIB, None))
    assert Sample(0.0, None, jobs={"a#1": a, "b#1": b, "c#1": unread}).in_use_bytes == 3 * GIB
    assert Sample(0.0, None, jobs={"c#1": unread}).in_use_bytes is None
    assert Sample(0.0, None, memory_bytes=GIB, jobs={"b#1": b}).in_use_bytes == GIB
    for known, said in ((3 * GIB, "3 / 24 GiB"), (None, "- / 24 GiB")):
        shown = device_rows([gpu(0, memory_bytes=known, memory_total_bytes=24 * GIB)], 118)
        assert f"  {said}  " in shown[1].plain


@pytest.mark.parametrize("width", [38, 78, 118])
def test_many_devices_have_a_row_each_that_fits(width: int) -> None:
    names = [f"a-job-with-a-long-name-{number}" for number in (0, 1)]
    lanes = [LaneStatus(number=number, jobs=[name], holder=name) for number, name in enumerate(names)]
    rows = device_rows([gpu(number, *lanes) for number in range(8)], width)
    assert len(rows) == 9 and all(row.cell_len <= width for row in rows)


def test_a_failed_device_and_one_that_was_set_say_so() -> None:
    rows = device_rows([gpu(0, failed="Xid \x1b[31m79"), gpu(1, setting={"gpu_clock": 1200.0})], 130)
    text = "\n".join(row.plain for row in rows)
    assert "failed: Xid \\x1b[31m79" in text and "gpu_clock 1200" in text and "\x1b" not in text


@pytest.mark.parametrize("width", [78, 118])
def test_names_that_jobs_cannot_have_are_text(width: int) -> None:
    hostile = job("[red]x[/red]\x1b[2J\n\u202e", "failed", exit_code=9, reason="\x1b]0;t\x07")
    rows = laid_out(job_columns(view(hostile)), width)
    assert all(row.plain.isprintable() and row.cell_len <= width for row in rows) and "[red]x[/red]" in rows[1].plain


def test_a_service_has_its_requests_and_a_sweep_its_trials() -> None:
    service = ServiceStatus(target_s=0.05, arrived=1200, late=3, unanswered=0, p99_s=0.061)
    jobs = (job("serve", service=service), job("sweep", trials=12, ended_trials={"completed": 2, "failed": 1}))
    heading, serves, sweeps = (row.plain for row in laid_out(job_columns(view(*jobs)), 118))
    assert "p99 now" in heading and "1200 requests" in serves and "61 ms of 50 ms" in serves
    assert "3/12 trials" in sweeps


def test_what_runs_is_first_and_what_ended_last_is_before_what_ended_earlier() -> None:
    waiting = [job(f"w{n}", "queued") for n in range(MOST_WAITING + 5)]
    ended = [job(f"e{n}", "completed", ended_unix_s=float(n)) for n in range(3)]
    shown = view(*ended, *waiting, job("r"), devices=(gpu(0),))
    names = [each.name for each in shown.jobs]
    assert names[:2] == ["r", "w0"] and names[-3:] == ["e2", "e1", "e0"] and len(names) == MOST_WAITING + 4
    assert shown.below() == "and 5 waiting jobs more"
    assert list(shown.facts())[:3] == ["queue lab", f"1 running, {MOST_WAITING + 5} waiting", "2610 kJ"]
