"""Latency and joules of a service's answers against batch size, from its profile: as a table, and to compare two."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import Console
from rich.text import Text

from ecoshare.jobs.quantities import format_duration, number
from ecoshare.profiling.profile import BatchAnswers, Profile
from ecoshare.reporting.figures import UNKNOWN, Figure, Writer, share, small_energy
from ecoshare.reporting.text_table import TableColumn, print_columns

GROUP = "answers"
"""Heading of these figures in the text of a profile."""


def print_answers(profile: Profile, console: Console) -> None:
    """Print a table with a line for each batch size. The profile is that of a service."""
    say = Writer(console)
    source = profile.energy.source if profile.energy is not None else ""
    columns: tuple[tuple[str, Callable[[BatchAnswers], str], int], ...] = (
        ("batch", lambda each: str(each.size), 0),
        ("mean", _mean, 0),
        ("p50", lambda each: format_duration(each.median_s), 2),
        ("p95", lambda each: format_duration(each.p95_s), 3),
        ("p99", lambda each: format_duration(each.p99_s), 0),
        ("requests/s", _rate, 1),
        (f"energy/request,\n{source}" if source else "energy/request", _joules, 0),
        ("batches\nmeasured", lambda each: str(each.count), 4),
    )
    table = [
        TableColumn(
            Text(f"  {heading}" if place == 0 else heading),
            [say.text(shown(each)) for each in profile.batches],
            right=True,
            lesser=lesser,
        )
        for place, (heading, shown, lesser) in enumerate(columns)
    ]
    print_columns(table, console)


def answer_figures(profile: Profile) -> Iterator[Figure]:
    """Figures of each batch size, to compare them with those of another profile; none if it is no service."""
    energy = profile.energy
    basis = f"{energy.source}{energy.scope}{profile.origin.device_model}" if energy is not None else ""
    for each in profile.batches:
        name = f"batch of {each.size}"
        error = each.relative_error or 0.0
        yield Figure(GROUP, f"{name}, mean", _mean(each), each.mean_s, error)
        yield Figure(GROUP, f"{name}, p99", format_duration(each.p99_s), each.p99_s)
        shown, source = _joules(each), f" {energy.source}" if energy is not None and each.per_request_j else ""
        relative = each.energy_error or 0.0
        yield Figure(GROUP, f"{name}, request", shown + source, each.per_request_j, relative, basis=basis)


def _mean(each: BatchAnswers) -> str:
    error = f" ± {share(each.relative_error)}" if each.relative_error is not None else ""
    return format_duration(each.mean_s) + error


def _rate(each: BatchAnswers) -> str:
    return number(each.size / each.mean_s) if each.mean_s else UNKNOWN


def _joules(each: BatchAnswers) -> str:
    if each.per_request_j is None:
        return UNKNOWN
    error = f" ± {share(each.energy_error)}" if each.energy_error is not None else ""
    return small_energy(each.per_request_j) + error
