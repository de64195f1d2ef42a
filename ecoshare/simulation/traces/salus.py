"""Generated traces of jobs like those of Salus. The original trace of 100 jobs is not public.

Source: Yu and Chowdhury, "Salus: Fine-Grained GPU Sharing Primitives for Deep Learning Applications", MLSys 2020.

With the catalogue that its repository publishes (`salus/workloads.csv`: name, JCT alone, peak memory, iterations,
command), the generator draws jobs from its rows. The catalogue lists a class of jobs in several lengths. The iteration
time is the slope between the shortest and the longest, and the rest of the JCT is the start. The generator ignores the
lengths in the names, since one of them, the second `vgg16_100_1min`, is wrong.

Without the catalogue, only the models, their batch sizes (`benchmarks/driver/workload.py` of that repository) and the
lengths of 1, 5 and 10 minutes are known. All are equally likely. Iteration times and memory are unknown.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ecoshare.simulation.traces.arrivals import poisson_s
from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob
from ecoshare.simulation.traces.networks import network, skew
from ecoshare.simulation.traces.sheet import Sheet, lines_of
from ecoshare.values.class_profile import MemoryDemand

FILE = Path("salus", "workloads.csv")
"""Path of the catalogue in the data folder."""

_COLUMNS = ("name", "JCT", "peak memory", "iterations", "command")

_BATCH_SIZES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("vgg11", "vgg16", "vgg19", "googlenet", "alexnet", "overfeat", "inception3"): ("25", "50", "100"),
    ("resnet50", "resnet101", "resnet152", "inception4", "speech"): ("25", "50", "75"),
    ("seq2seq",): ("small", "medium", "large"),
    ("vae",): ("64", "128", "256"),
    ("superres",): ("32", "64", "128"),
}
_LENGTHS_S = (60, 300, 600)

_FLOAT_BYTES = 4

_MEASURED = (
    "drawn from Salus' catalogue, each row as likely; what is kept between iterations is taken to be the parameters"
    " once (its commands train by plain SGD), and the rest of the peak to be ephemeral"
)
_PUBLISHED = (
    "drawn from the 15 models, 3 batch sizes and lengths of 1, 5 and 10 minutes of Salus' repository, each as likely;"
    " iterations are taken to be of a second, and memory is not known"
)


@dataclass(frozen=True, slots=True)
class _Entry:
    """Job that the generator may draw."""

    job_class: str
    model: str
    phase: Phase
    startup_s: float
    memory: MemoryDemand | None

    @property
    def service_s(self) -> float:
        return self.startup_s + self.phase.iterations * self.phase.iteration_s


def generate(jobs: int, seed: int, data: Path | None, gpus: int, load: float) -> Trace:
    """Trace of jobs of one GPU each, which arrive by a Poisson process.

    Raises:
        UsageError: The catalogue cannot be read.
        InvalidJobFile: The file has faults; the error lists them.
    """
    entries = _published() if data is None else _catalogue(data / FILE)
    draws, times = np.random.default_rng(seed).spawn(2)
    mean_s = math.fsum(entry.service_s for entry in entries) / len(entries)
    arrivals_s = poisson_s(times, jobs, mean_s, gpus, load)
    drawn = [entries[place] for place in draws.integers(len(entries), size=jobs)]
    made = tuple(
        TraceJob(
            name=f"job-{number}",
            job_class=entry.job_class,
            arrival_s=arrival_s,
            phases=(entry.phase,),
            memory=entry.memory,
            startup_s=entry.startup_s,
            skew=skew(entry.model),
        )
        for number, (entry, arrival_s) in enumerate(zip(drawn, arrivals_s, strict=True))
    )
    return Trace(f"salus, seed {seed}", "generated", made, _PUBLISHED if data is None else _MEASURED)


def _published() -> list[_Entry]:
    """Entries from published figures, without the catalogue."""
    return [
        _Entry(f"{model}_{batch_size}", model, Phase(length_s, 1.0), 0.0, None)
        for models, batch_sizes in _BATCH_SIZES.items()
        for model in models
        for batch_size in batch_sizes
        for length_s in _LENGTHS_S
    ]


def _catalogue(path: Path) -> list[_Entry]:
    """Entries from the rows of the catalogue."""
    sheet = Sheet(str(path), lines_of(path), ",", _COLUMNS)
    rows: dict[tuple[str, str], list[tuple[int, float, float]]] = defaultdict(list)
    for row in sheet.rows():
        model, _, rest = sheet.text(row, 0).partition("_")
        jct_s, peak_mib, iterations = sheet.positive(row, 1), sheet.positive(row, 2), sheet.whole(row, 3)
        if "_" not in rest:
            sheet.wrong(row, 0, "expected model_batch_length, such as vgg16_50_5min")
        rows[model, rest.partition("_")[0]].append((iterations, jct_s, peak_mib))
    sheet.finish()
    return [entry for (model, batch_size), measured in rows.items() for entry in _entries(model, batch_size, measured)]


def _entries(model: str, batch_size: str, measured: list[tuple[int, float, float]]) -> list[_Entry]:
    """Entries of one class of jobs, one for each length.

    Args:
        measured: Iterations, JCT (s) and peak memory (MiB) of each length.
    """
    (least, shortest_s, _), (most, longest_s, _) = min(measured), max(measured)
    iteration_s = (longest_s - shortest_s) / (most - least) if most > least else longest_s / most
    found = []
    for iterations, jct_s, peak_mib in measured:
        # The limit keeps the start at 0 or more, so that start and iterations add up to the measured JCT.
        each_s = min(iteration_s, jct_s / iterations)
        startup_s = jct_s - iterations * each_s
        memory = _memory(model, int(peak_mib * 2**20))
        phase = Phase(iterations, each_s)
        found.append(_Entry(f"{model}_{batch_size}", model, phase, max(0.0, startup_s), memory))
    return found


def _memory(model: str, peak_bytes: int) -> MemoryDemand:
    """Peak memory, split into persistent and ephemeral; all persistent, to be safe, if the network is unknown."""
    known = network(model)
    persistent_bytes = peak_bytes if known is None else min(peak_bytes, known.parameters * _FLOAT_BYTES)
    return MemoryDemand(persistent_bytes, peak_bytes - persistent_bytes)
