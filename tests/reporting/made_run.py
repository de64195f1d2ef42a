"""Invented run folders: jobs alternate in lanes, and a meter counts their power."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.commands import OpenLane, StartJob
from ecoshare.core.events import Config, Done, JobArrived, JobExited, RunOpened
from ecoshare.lane.trace import Kind, Mark
from ecoshare.record import samples
from ecoshare.record.accounts.energy_account import account
from ecoshare.record.accounts.run_energy import RunEnergy
from ecoshare.record.results.baseline import Baseline
from ecoshare.record.results.energy_summary import DeviceEnergy, job_energy, run_energy
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.results.packing_summary import PackingSpeeds, PackingSummary
from ecoshare.record.results.run_summary import DeviceSummary, RunSummary
from ecoshare.record.run_data import RunData
from ecoshare.record.run_history import RunHistory
from ecoshare.record.samples import Line, Session, attempt_key

GIB = 1 << 30
IDLE_W = 75.0
HOSTILE = "Traceback: <script>alert(1)</script> & \"quoted\" 'too'"


def marks(begin_s: float, end_s: float, turn: int, of: int, quantum_s: float, step_s: float) -> list[Mark]:
    """Job that holds every `of`-th quantum, in iterations of `step_s`; each tenth is an evaluation."""
    found: list[Mark] = []
    at_s, done = (math.ceil((begin_s / quantum_s - turn) / of) * of + turn) * quantum_s, 0
    while at_s + quantum_s <= end_s:
        found.append(Mark(Kind.TURN_BEGINS, at_s))
        steps = max(1, int(quantum_s / step_s))
        for step in range(1, steps + 1):
            done += 1
            found.append(Mark(Kind.EVAL if done % 10 == 0 else Kind.TRAIN, at_s + step * quantum_s / steps))
        found.append(Mark(Kind.TURN_ENDS, at_s + quantum_s))
        at_s += of * quantum_s
    return found


def run(
    jobs: int = 4,
    lanes: int = 1,
    length_s: float = 600.0,
    source: str = "measured",
    failing: bool = True,
    gap: bool = True,
    quantum_s: float = 12.0,
    memory: bool = True,
    period_s: float = 5.0,
) -> RunData:
    """Run of `jobs` jobs; with `failing`, the second one fails with a hostile message after one more attempt."""
    gpu = source == "measured"
    device = "cuda:0" if gpu else "cpu"
    names = [f"train-resnet50.lr{index:02d}" if index % 3 else f"job{index}" for index in range(jobs)]
    entries: list[Any] = [
        RunOpened(0.0, 1, Config("fair", lanes), (Device(device, "local", 80 * GIB),)),
        *(OpenLane(lane, lane, device, 80 * GIB // lanes) for lane in range(lanes)),
    ]
    traces: dict[tuple[str, int], list[Mark]] = {}
    rows: list[JobSummary] = []
    lives: list[tuple[str, int, int, float, float, float]] = []
    of = -(-jobs // lanes)
    for index, name in enumerate(names):
        lane, arrival_s = index % lanes, 3.0 * index
        begin_s = arrival_s + 4.0 * (1 + index // lanes)
        end_s = begin_s + (length_s - begin_s) * (0.55 + 0.45 * (index + 1) / jobs)
        failed = failing and index == 1
        spans = [(begin_s, begin_s + 60.0), (begin_s + 64.0, end_s)] if failed else [(begin_s, end_s)]
        entries.append(JobArrived(arrival_s, JobSpec(name, f"class{index % 3}")))
        peak_bytes = (3 + 5 * (index % 4)) * GIB // 2
        for number, (from_s, to_s) in enumerate(spans, start=1):
            traces[name, number] = marks(from_s + 2.0, to_s, index // lanes, of, quantum_s, quantum_s / 8)
            held_s = sum(mark.kind is Kind.TURN_ENDS for mark in traces[name, number]) * quantum_s
            used = Usage(iterations=int(held_s), held_s=held_s, cpu_s=held_s, peak_bytes=peak_bytes)
            entries.append(StartJob(100 + 10 * index + number, name, number, (lane,), 20 * GIB))
            entries.append(Done(from_s, 100 + 10 * index + number))
            outcome = Outcome.CRASHED if failed else Outcome.COMPLETED
            entries.append(JobExited(to_s, name, number, outcome, 1 if failed else 0, HOSTILE if failed else "", used))
            lives.append((name, number, lane, from_s, to_s, 90.0 + 60.0 * (index % 4)))
        rows.append(_row(name, index, lane, arrival_s, begin_s, end_s, len(spans), failed, peak_bytes, held_s, of))
    lines = _lines(lives, traces, device, source, length_s, peak=peak_bytes, gap=gap, memory=memory, period_s=period_s)
    book = RunEnergy({device: account(lines, lambda job: None)})
    rows = [replace(row, energy=job_energy(row.name, book)) for row in rows]
    rows = [
        replace(row, energy_per_iteration_j=row.energy.value_j / row.iterations)
        if row.energy is not None and row.iterations
        else row
        for row in rows
    ]
    energy = run_energy(book)
    assert energy is not None
    summary = _summary(tuple(rows), device, lanes, energy, book.idle_j)
    return RunData(summary, RunHistory(entries), lines, book, traces, environment(device))


def environment(device: str) -> dict[str, Any]:
    """Content of environment.json, with its secret."""
    return {
        "schema_version": 1,
        "ecoshare": "0.1.0",
        "python": "3.11.7",
        "platform": "Linux-6.1-x86_64",
        "torch": "2.13.0",
        "intra_op_threads": 1,
        "opened_unix_s": 1_795_000_000.0,
        "token": "5ec4e75ec4e75ec4",
        "devices": [
            {"name": device, "kind": "cuda", "model": "NVIDIA H200", "memory_bytes": 80 * GIB, "driver": "560.1"}
        ],
        "power_models": {},
    }


def _row(
    name: str,
    index: int,
    lane: int,
    arrival_s: float,
    begin_s: float,
    end_s: float,
    attempts: int,
    failed: bool,
    peak_bytes: int,
    held_s: float,
    of: int,
) -> JobSummary:
    return JobSummary(
        name=name,
        job_class=f"class{index % 3}",
        state="failed" if failed else "completed",
        exit_code=1 if failed else 0,
        attempts=attempts,
        devices=("cuda:0",),
        lanes=(lane,),
        iterations=int(held_s),
        eval_iterations=int(held_s / 10),
        arrival_s=arrival_s,
        start_s=begin_s,
        finish_s=end_s,
        jct_s=end_s - arrival_s,
        queue_s=begin_s - arrival_s,
        slowdown=float(of),
        held_s=held_s,
        handovers=7,
        longest_wait_s=31.0,
        peak_memory_bytes=peak_bytes,
        error=HOSTILE if failed else None,
    )


def _summary(
    rows: tuple[JobSummary, ...], device: str, lanes: int, energy: DeviceEnergy, idle_j: float | None
) -> RunSummary:
    jcts_s = [row.jct_s for row in rows if row.state == "completed" and row.jct_s is not None]
    return RunSummary(
        run="ecoshare-runs/20261121-053012-jobs",
        objective="energy",
        policy="fair",
        devices=(DeviceSummary({"name": device, "kind": "cuda", "model": "NVIDIA H200", "memory_bytes": 80 * GIB}),),
        lanes=lanes,
        state="failed" if any(row.state == "failed" for row in rows) else "completed",
        makespan_s=max(row.finish_s or 0.0 for row in rows),
        mean_jct_s=sum(jcts_s) / len(jcts_s) if jcts_s else None,
        energy=energy,
        idle_energy_j=idle_j,
        idle_power_w=1.48,
        search_energy_j=0.0,
        jobs=rows,
        packings=packings(rows),
        baseline=Baseline(
            exclusive_energy_j=1.2 * energy.value_j,
            exclusive_energy_error_j=0.02 * energy.value_j,
        ),
        notes=("objective energy: everybody gets equal turns (policy fair)",),
    )


def packings(rows: Sequence[JobSummary]) -> tuple[PackingSummary, ...]:
    """Packings of one job alone, and of two beside each other that were measured and tuned."""
    one = rows[0].job_class
    alone = PackingSummary("cuda:0", ((one,),), (rows[0].name,), 4.0, 9.0, 5.0, predicted=PackingSpeeds({one: 1.0}))
    if len(rows) < 2:
        return (alone,)
    other = rows[1].job_class
    together = replace(
        alone,
        classes=((one,), (other,)),
        jobs=(rows[0].name, rows[1].name),
        energy_j=51_200.0,
        predicted=PackingSpeeds({one: 0.93, other: 0.88}, 310.0),
        measured=PackingSpeeds({one: 0.71, other: 0.64}, 305.5),
        settings_tried=7,
        setting={"gpu_clock": 1410.0},
        energy_ratio=0.87,
        verdict="undone",
    )
    return alone, together


def _lines(
    lives: list[tuple[str, int, int, float, float, float]],
    traces: dict[tuple[str, int], list[Mark]],
    device: str,
    source: str,
    length_s: float,
    peak: int,
    gap: bool,
    memory: bool,
    period_s: float,
) -> list[Line]:
    """Samples of a meter that adds up the power of the jobs that hold a turn."""
    gpu = source == "measured"
    about = "the GPU's energy counter, updated every 100 ms" if gpu else "2 cores of 0.74 W at rest and 3.5 W busy"
    name, scope = ("nvml", "gpu") if gpu else ("model", "cpu")
    session = Session(0.0, device, name, source, scope, about, 0.1 if gpu else 0.0, IDLE_W)
    lines = [samples.encode(session)]
    held = {key: _held(found) for key, found in traces.items()}
    energy_j = at_s = 0.0
    before: dict[str, float] = {}
    while at_s <= length_s:
        jobs: dict[str, Any] = {}
        for index, (job, number, lane, from_s, to_s, watts) in enumerate(lives):
            if from_s > at_s:
                continue
            held_s = sum(min(at_s, end_s) - begin_s for begin_s, end_s in held[job, number] if begin_s < at_s)
            key = attempt_key(job, number)
            energy_j += watts * (held_s - before.get(key, 0.0))
            before[key] = held_s
            bytes_now = int((0.6 + 0.4 * ((at_s * 7 + index) % 11 > 4)) * (2 + index % 4) * GIB)
            known = bytes_now if memory and at_s < to_s else None
            jobs[key] = (lane, held_s, int(held_s), int(held_s / 10), held_s, known)
        fault = "the driver did not answer" if gap and 0.4 < at_s / length_s < 0.46 else ""
        state: dict[str, Any] = {}
        if gpu:
            total = sum(each[-1] or 0 for each in jobs.values())
            state = {
                "power_w": IDLE_W + 100.0,
                "gpu_clock_mhz": 1980.0 - 15.0 * (int(at_s) % 7),
                "memory_clock_mhz": 2619.0,
                "temperature_c": 50.0,
                "busy": 0.9,
                "memory_bytes": total + GIB,
            }
        counted_j = None if fault else energy_j + IDLE_W * at_s
        lines.append(json.dumps({"at_s": at_s, "energy_j": counted_j, "fault": fault, **state, "jobs": jobs}))
        at_s += period_s
    return list(samples.decode(lines))


def _held(found: list[Mark]) -> list[tuple[float, float]]:
    begins = [mark.at_s for mark in found if mark.kind is Kind.TURN_BEGINS]
    return list(zip(begins, (mark.at_s for mark in found if mark.kind is Kind.TURN_ENDS), strict=True))
