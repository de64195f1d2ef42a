"""Chart of energy by job."""

from __future__ import annotations

import math

from matplotlib.ticker import MaxNLocator

from ecoshare.jobs.quantities import format_energy
from ecoshare.record.run_data import RunData
from ecoshare.reporting.charts.axes import add_tip, bars_of, energy_unit, label_bar
from ecoshare.reporting.charts.look import GRID, INK, Chart, Look


def energy(data: RunData, looks: list[Look]) -> Chart:
    """Chart of the joules of each job beyond idle, and of the idle part."""
    title = "Energy by job"
    jobs = {job.name: job.energy for job in data.summary.jobs}
    whole, idle_j = data.summary.energy, data.summary.idle_energy_j
    if whole is None or not any(jobs.values()):
        return Chart("energy", title, "Not known: there are no joules of single jobs.")
    figure, axes = bars_of([*looks, Look("idle part", (), GRID)])
    tips: dict[str, str] = {}
    words: list[str] = []
    sources = sorted({each.source for each in jobs.values() if each is not None})
    spent_j = [math.fsum(each.value_j for name in look.jobs if (each := jobs[name]) is not None) for look in looks]
    longest_j = max([*spent_j, idle_j or 0.0])
    factor, unit = energy_unit(longest_j)
    for row, look in enumerate(looks):
        known = [each for name in look.jobs if (each := jobs[name]) is not None]
        if not known:
            label_bar(axes, 0.0, row, "not known")
            continue
        value_j = spent_j[row]
        bar = axes.barh(row, value_j / factor, height=0.62, **look.fill)[0]
        errors = [each.standard_error_j for each in known if each.standard_error_j is not None]
        error_j = math.hypot(*errors) if len(errors) == len(known) else 0.0
        if error_j:
            axes.errorbar(value_j / factor, row, xerr=error_j / factor, color=INK, linewidth=1.0, capsize=2.0)
        label = format_energy(value_j) + (f" ± {format_energy(error_j)}" if error_j else "")
        label_bar(axes, (value_j + error_j) / factor, row, label)
        words.append(f"{look.label} {label} {known[0].source}")
        add_tip(bar, f"energy-{row}", words[-1], tips)
    if idle_j is None:
        label_bar(axes, 0.0, len(looks), "not known")
    else:
        axes.barh(len(looks), idle_j / factor, height=0.62, facecolor=GRID, linewidth=0.0)
        label_bar(axes, idle_j / factor, len(looks), f"{format_energy(idle_j)}")
    axes.set_xlim(0.0, 1.25 * longest_j / factor or 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(7))
    axes.set_xlabel(f"{unit}, {' or '.join(sources)}")
    caption = (
        f"Each job's joules beyond idle, {' or '.join(sources)}; the idle part is what no job caused, "
        f"of the whole that was {whole.source}."
    )
    caption += " Whiskers: one standard error." if any(each and each.standard_error_j for each in jobs.values()) else ""
    return Chart("energy", title, caption, f"Bars of energy: {'; '.join(words)}.", figure, tips)
