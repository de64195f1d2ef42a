"""A mix of eight small jobs on one device in several ways, with time and joules of each: the headline of gpu_check.py.

::

    one after the other    [mlp][cnn][wide] ...          plain processes; no other is there
    ecoshare               --policy energy --lanes 3     the real command, with no profile of any class
    MPS                    all at once                   clients of a daemon of our own, gone afterwards
    time slices            all at once                   plain processes; the driver's time slices, no MPS
    ecoshare again         the same command              by what its first run has measured

The work is the same in all ways: steps are chosen once, by the time of a step of each kind alone. Joules are those of
the whole board, from the start of the first job to the end of the last (for ecoshare: of its command, with its start
and end), from one counter in all ways. Nothing is set on the GPU.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean

from ecoshare.devices import registry
from ecoshare.devices.meter import Meter, MeterFault
from scripts.bench.benchmarking import Figure
from scripts.bench.mix.bench import Bench, Way, WayFailed, meter_of, mix, swept
from scripts.bench.mix.ways import BASE, all_ways

IDLE_S = 3.0


def measure(device: str, length_s: float, left_s: Callable[[], float]) -> list[Figure]:
    """All figures of the mix.

    Args:
        device: `cuda` or `cpu`; on processors there are neither joules nor MPS.
        length_s: Time of each job alone.
        left_s: Time until all must be over.
    """
    with tempfile.TemporaryDirectory(prefix="mix-") as name:
        found = registry.find(device)
        with meter_of(found) as (meter, why_not):
            bench = Bench(found, Path(name), secrets.token_hex(8), left_s, meter)
            with swept(bench):
                return _measured(bench, length_s, why_not)


def _measured(bench: Bench, length_s: float, why_not: str) -> list[Figure]:
    try:
        jobs = mix(bench, length_s)
    except WayFailed as failed:
        return [Figure("mix", None, "", note=str(failed))]
    sizes = ", ".join(f"{job.kind} {job.steps}" for job in jobs)
    figures = [Figure("mix: jobs", len(jobs), "", note=f"steps, for {length_s:g} s alone each: {sizes}")]
    figures.append(_idle(bench.meter, why_not))
    return figures + _figures(all_ways(bench, jobs, length_s), why_not)


def _figures(ways: Mapping[str, Way | str], why_not: str) -> list[Figure]:
    figures = []
    base = ways[BASE]
    for name, way in ways.items():
        title = f"mix, {name}"
        if isinstance(way, str):
            figures += [Figure(f"{title}: time", None, "s", note=way), Figure(f"{title}: energy", None, "J", note=way)]
            continue
        jct_s = fmean(way.jcts_s)
        figures.append(Figure(f"{title}: time", way.time_s, "s", note=way.note))
        figures.append(Figure(f"{title}: mean JCT", jct_s, "s"))
        figures.append(Figure(f"{title}: energy", way.energy_j, "J", note=why_not))
        if isinstance(base, Way) and way is not base:
            figures.append(Figure(f"{title}: time / {BASE}", way.time_s / base.time_s, "x"))
            figures.append(Figure(f"{title}: mean JCT / {BASE}", jct_s / fmean(base.jcts_s), "x"))
            if way.energy_j is not None and base.energy_j:
                figures.append(Figure(f"{title}: energy / {BASE}", way.energy_j / base.energy_j, "x"))
        if way.own_j is not None and way.energy_j:
            note = "its own has no start and end of the command in it"
            figures.append(Figure(f"{title}: own account / counter", way.own_j / way.energy_j, "x", note=note))
    return [*figures, same_losses(ways)]


def same_losses(ways: Mapping[str, Way | str]) -> Figure:
    """Number of jobs that printed the same bytes in all finished ways."""
    done = {name: way.printed for name, way in ways.items() if isinstance(way, Way)}
    name = "mix: jobs with bit-equal losses in all ways"
    if len(done) < 2:
        return Figure(name, None, "", note="fewer than two ways were done")
    first = next(iter(done.values()))
    same = [kind for kind in first if first[kind] and len({printed[kind] for printed in done.values()}) == 1]
    other = sorted(set(first) - set(same))
    note = f"of {len(first)}, in {len(done)} ways" + (f"; not {', '.join(other)}" if other else "")
    return Figure(name, len(same), "", f">= {len(first)}", note)


def _idle(meter: Meter | None, why_not: str) -> Figure:
    """Power (W) of the device before anything runs there."""
    name = "mix: idle power before it"
    if meter is None:
        return Figure(name, None, "W", note=why_not)
    try:
        before = meter.read()
        time.sleep(IDLE_S)
        after = meter.read()
    except MeterFault as fault:
        return Figure(name, None, "W", note=str(fault))
    return Figure(name, (after.energy_j - before.energy_j) / (after.at_s - before.at_s), "W", note=meter.info.about)
