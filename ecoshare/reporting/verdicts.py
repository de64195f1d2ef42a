"""What the decisions of a run came to, in a few lines: joules against both baselines, limits, what searching cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ecoshare.jobs.quantities import format_duration, format_energy
from ecoshare.reporting.reason_words import listed, percent

_WHOLE = 0.99
"""Part of the run whose joules must be known to be compared with those of all its work."""


def verdicts(summary: Mapping[str, Any]) -> list[str]:
    """The lines, without those of which nothing is known."""
    return [line for line in (exclusive(summary), packed(summary), limits(summary)) if line]


def exclusive(summary: Mapping[str, Any]) -> str:
    """Against each job alone at the default setting; empty where that is not known."""
    baseline = summary["baseline"] or {}
    spent_j, alone_j = _energy_j(summary), baseline.get("exclusive_energy_j")
    took_s, alone_s = summary["makespan_s"], baseline.get("exclusive_makespan_s")
    parts = []
    if spent_j is not None and alone_j:
        parts.append(f"{format_energy(alone_j)} ({_less(spent_j, alone_j)})")
    if took_s is not None and alone_s:
        parts.append(f"{format_duration(alone_s)} ({_less(took_s, alone_s)})")
    if not parts:
        return ""
    return f"each job alone at the default setting, {baseline['source']}: {' and '.join(parts)}"


def packed(summary: Mapping[str, Any]) -> str:
    """Against the same packings at the default setting; empty where that is not known, or nothing was set."""
    baseline = summary["baseline"] or {}
    spent_j, default_j = _energy_j(summary), baseline.get("packed_default_energy_j")
    in_force = [each for each in summary["settings"] if each["error"] is None]
    if spent_j is None or not default_j or not in_force:
        return ""
    words = f"packed as it was at the default setting, {baseline['source']}: {format_energy(default_j)}"
    return f"{words} ({_less(spent_j, default_j)})"


def limits(summary: Mapping[str, Any]) -> str:
    """Limits that were kept and broken, and by how much; empty where there is none."""
    limited = [job for job in summary["jobs"] if job.get("slowdown_limit") is not None]
    if not limited:
        return ""
    kept = sum(job["slowdown_limit_met"] is True for job in limited)
    unknown = sum(job["slowdown_limit_met"] is None for job in limited)
    parts = [f"{kept} of {len(limited)} kept"] + ([f"{unknown} not known"] if unknown else [])
    broken = [_broken(job) for job in limited if job["slowdown_limit_met"] is False]
    return f"limits: {', '.join(parts)}" + (f"; broken: {listed(broken)}" if broken else "")


def _broken(job: Mapping[str, Any]) -> str:
    over = job["slowdown"] / job["slowdown_limit"] - 1.0
    return f"{job['name']} was {job['slowdown']:.2f} times slower, {percent(over)} over its {job['slowdown_limit']:g}"


def _energy_j(summary: Mapping[str, Any]) -> float | None:
    """Of the run; None where too much of it is not known."""
    energy = summary["energy"]
    return energy["value_j"] if energy is not None and energy["covered"] >= _WHOLE else None


def _less(value: float, than: float) -> str:
    saved = 1.0 - value / than
    return f"{percent(abs(saved))} {'less' if saved >= 0.0 else 'more'} here"
