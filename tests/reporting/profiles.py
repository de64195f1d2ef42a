"""Profiles for reports, built by hand."""

from __future__ import annotations

from ecoshare.knowledge.profile import (
    AchievedSetting,
    BatchAnswers,
    IterationEnergy,
    IterationTimes,
    Machine,
    MemoryProfile,
    Profile,
    ProfileOrigin,
    ProfileWindow,
    Use,
)
from ecoshare.lane.memory.recording import Point

MIB = 1 << 20
TIMELINE: tuple[Point, ...] = (
    (0.0, 1200 * MIB),
    (0.0001, 800 * MIB),
    (0.001, 1000 * MIB),
    (0.002, 1600 * MIB),
    (0.003, 2200 * MIB),
    (0.004, 3300 * MIB),
    (0.005, 2600 * MIB),
    (0.007, 2400 * MIB),
    (0.009, 1500 * MIB),
    (0.011, 1200 * MIB),
    (0.0124, 1200 * MIB),
)
"""Timeline of an iteration that begins by freeing the last one's gradients."""

MEMORY = MemoryProfile(
    persistent_bytes=1500 * MIB,
    ephemeral_bytes=2100 * MIB,
    model_bytes=1200 * MIB,
    framework_bytes=300 * MIB,
    parts={"parameters": 400 * MIB, "gradients": 400 * MIB, "optimizer": 400 * MIB, "graph": 0, "other": None},
    peak_bytes=3300 * MIB,
    context_bytes=250 * MIB,
    timeline=TIMELINE,
)
ENERGY = IterationEnergy(
    per_iteration_j=4.25,
    per_eval_iteration_j=None,
    active_per_iteration_j=3.4,
    active_per_eval_iteration_j=None,
    relative_error=0.012,
    power_w=340.0,
    idle_w=68.0,
    idle_share=0.2,
    source="measured",
    scope="gpu",
    meter="nvml",
    about="the GPU's own counter, new every 0.1 s",
)
PROFILE = Profile(
    job_class="resnet",
    made_utc="2026-11-21T05:30:12Z",
    origin=ProfileOrigin(
        script="/home/ada/train.py",
        sources={"train.py": "a1" * 32, "model.py": "b2" * 32},
        args=("--lr", "0.1"),
        device_model="NVIDIA H200",
        torch="2.9.0",
    ),
    machine=Machine(
        device="cuda:0",
        kind="cuda",
        uuid="GPU-1234",
        driver="570.86",
        cores=16,
        intra_op_threads=8,
        python="3.12.3",
        platform="Linux-6.8",
        ecoshare="0.1.0",
    ),
    setting=AchievedSetting(gpu_clock_mhz=1980.0, memory_clock_mhz=2619.0, power_limit_w=700.0),
    memory=MEMORY,
    train=IterationTimes(count=230, mean_s=0.0126, standard_error_s=0.000126, median_s=0.0124, p95_s=0.0151),
    eval=None,
    use=Use(busy=0.93, memory_busy=0.41, bound_by="compute"),
    energy=ENERGY,
    window=ProfileWindow(
        warm_up_iterations=20,
        warm_up_s=4.1,
        measured_s=2.9,
        total_s=9.6,
        productive_s=3.4,
        overhead=0.034,
        paused_jobs=2,
    ),
    steady=True,
)

NOTHING_KNOWN = PROFILE.model_copy(
    update={
        "job_class": "unknown",
        "setting": AchievedSetting(),
        "memory": MemoryProfile(
            persistent_bytes=None,
            ephemeral_bytes=None,
            model_bytes=None,
            framework_bytes=None,
            note="the script uses a profiler itself",
        ),
        "train": None,
        "use": Use(busy=None),
        "energy": None,
        "window": PROFILE.window.model_copy(update={"overhead": None}),
        "steady": False,
        "notes": ("no meter could be opened",),
    }
)
"""Profile in which all optional values are unknown."""

SERVICE = PROFILE.model_copy(
    update={
        "job_class": "detector",
        "train": None,
        "energy": ENERGY.without_iterations(),
        "batches": (
            BatchAnswers(
                size=1,
                count=400,
                mean_s=0.008,
                standard_error_s=0.00008,
                median_s=0.0079,
                p95_s=0.0085,
                p99_s=0.009,
                per_request_j=2.72,
                energy_error=0.015,
            ),
            BatchAnswers(
                size=4, count=250, mean_s=0.0125, standard_error_s=None, median_s=0.012, p95_s=0.014, p99_s=0.015
            ),
        ),
    }
)
"""Profile of a service; the joules of batches of 4 are unknown."""


def timed(timeline: tuple[Point, ...], job_class: str = "resnet") -> Profile:
    """Profile with another timeline."""
    memory = MEMORY.model_copy(update={"timeline": timeline})
    return PROFILE.model_copy(update={"memory": memory, "job_class": job_class})
