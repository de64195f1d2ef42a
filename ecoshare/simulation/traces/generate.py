"""Generator of traces: `ecoshare simulate --generate KIND`; equal for equal seeds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.job_spec import StoppingSpec
from ecoshare.base.plural import counted
from ecoshare.errors import UsageError, did_you_mean
from ecoshare.simulation.traces.any_trace import read
from ecoshare.simulation.traces.cluster_jobs import a_second_each, job_class
from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob, TraceSweep, TraceTrial
from ecoshare.simulation.traces.sheet import Sheet, lines_of


@dataclass(frozen=True, slots=True)
class Network:
    """Sizes of a network, in numbers of parameters.

    Tiresias (Gu et al., NSDI 2019) asks for GPUs of few machines only if one tensor makes up much of a model, since
    such a tensor keeps one network card busy. The largest tensors follow from the layers that the papers print. The
    totals are those of the authors, or of torchvision and timm, for ImageNet's 1,000 classes:

    * VGG: Simonyan and Zisserman, ICLR 2015, table 1 (A, D, E): fc6 takes 512 x 7 x 7 inputs to 4,096.
    * AlexNet: Krizhevsky, arXiv:1404.5997 (one column): fc6 takes 256 x 6 x 6 inputs to 4,096.
    * ResNet: He et al., CVPR 2016, table 1: conv5_x has 3 x 3 filters, 512 to 512.
    * GoogLeNet: Szegedy et al., CVPR 2015, table 1; Inception v3: Szegedy et al., CVPR 2016, table 1; Inception v4:
      Szegedy et al., AAAI 2017, figure 9: the classifier, 1,024, 2,048 and 1,536 inputs to 1,000; without auxiliary
      classifiers.
    * OverFeat: Sermanet et al., ICLR 2014, table 1 (fast): fc6 takes 1,024 x 6 x 6 inputs to 3,072.
    """

    parameters: int
    largest_tensor: int

    @property
    def skew(self) -> float:
        """Share of the largest tensor in all parameters, 0 to 1."""
        return self.largest_tensor / self.parameters


_CONV5 = 512 * 512 * 3 * 3

_NETWORKS = {
    "vgg11": Network(132_863_336, 512 * 7 * 7 * 4096),
    "vgg16": Network(138_357_544, 512 * 7 * 7 * 4096),
    "vgg19": Network(143_667_240, 512 * 7 * 7 * 4096),
    "alexnet": Network(61_100_840, 256 * 6 * 6 * 4096),
    "resnet50": Network(25_557_032, _CONV5),
    "resnet101": Network(44_549_160, _CONV5),
    "resnet152": Network(60_192_808, _CONV5),
    "googlenet": Network(6_624_904, 1024 * 1000),
    "inception3": Network(23_834_568, 2048 * 1000),
    "inception4": Network(42_679_816, 1536 * 1000),
    "overfeat": Network(145_704_424, 1024 * 6 * 6 * 3072),
}


def network(name: str) -> Network | None:
    """Network of this name in any common spelling (`VGG-16`, `inception_v3`); None if unknown."""
    bare = name.lower().replace("-", "").replace("_", "")
    return _NETWORKS.get(bare.replace("inceptionv", "inception"))


def skew(name: str) -> float | None:
    """Share of the largest tensor in a network's parameters; None if the network is unknown."""
    known = network(name)
    return None if known is None else known.skew


def poisson_s(rng: np.random.Generator, jobs: int, gpu_s: float, gpus: int, load: float) -> list[float]:
    """Arrival times (s) of a Poisson process; the first job arrives at 0.

    Args:
        gpu_s: Expected GPU-seconds of a job.
        gpus: Number of GPUs.
        load: Share of the GPUs that the jobs keep busy in the long run. Above 1, the queue grows while jobs arrive.
    """
    gaps_s = rng.exponential(gpu_s / (gpus * load), jobs)
    gaps_s[0] = 0.0
    return [float(at_s) for at_s in np.cumsum(gaps_s)]


PHILLY_FILE = Path("philly", "philly_jobs.csv")
"""Path of the trace in the data folder."""

LEVELS = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)


class JobSizeClass(NamedTuple):
    """Jobs of one number of GPUs.

    Source: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", ATC 2019.

    With the trace (`philly/philly_jobs.csv`), the generator draws rows from it with replacement. Without it, the
    generator draws the number of GPUs by its share in the trace, and the duration by quantiles of the jobs with that
    many GPUs. The logarithm of the duration is linear between quantiles. A log-normal distribution does not fit. With
    the mean and standard deviation of the logarithm, its mean is 5 times that of the jobs of 4 and 8 GPUs, and 22 times
    that of the jobs of 16, since many of them fail within minutes.

    Attributes:
        jobs: Number of jobs, of the 82,247 in the trace.
        durations_s: Quantiles of the durations (s) at `LEVELS`.
    """

    jobs: int
    durations_s: tuple[int, ...]


GROUPS = {
    1: JobSizeClass(76627, (1, 52, 62, 122, 1117, 2716, 8512, 19137, 135404, 863786, 3256045)),
    2: JobSizeClass(1818, (2, 9, 11, 16, 21, 76, 72361, 197004, 526030, 1463703, 2582803)),
    4: JobSizeClass(1870, (3, 75, 138, 772, 17388, 89422, 184426, 274339, 906798, 2416865, 2750674)),
    8: JobSizeClass(1643, (1, 125, 216, 1871, 23683, 173288, 352409, 525631, 1066894, 2655194, 4628226)),
    16: JobSizeClass(199, (2, 40, 55, 387, 52548, 163599, 340881, 505681, 1152387, 1710643, 1710643)),
    32: JobSizeClass(67, (2, 345, 819, 1182, 14262, 53301, 59941, 78004, 121661, 128924, 128924)),
}
"""Classes by number of GPUs, from the trace that Microsoft publishes (msr-fiddle/philly-traces, CC-BY 4.0), as Pollux
(Qiao et al., OSDI 2021) prepared it: September to December 2017. The table leaves out numbers of GPUs with fewer than
50 jobs (12, 24, 64, 128)."""

_POPULATION = 1 << 16
"""Number of draws that estimate the mean, which converges slowly for so wide a distribution."""

_DRAWN = "rows of the Philly trace, each as likely"
_QUANTILES = "numbers of GPUs and durations by the quantiles of the Philly trace"
_PHILLY_NOTE = (
    "iterations are not known and taken to be of about a second; jobs arrive by a Poisson process, all day alike"
)


def philly(jobs: int, seed: int, data: Path | None, gpus: int, load: float) -> Trace:
    """Trace of jobs that each ask for at most `gpus` GPUs.

    Raises:
        UsageError: The trace cannot be read, or has no jobs that fit.
        InvalidJobFile: The file has faults; the error lists them.
    """
    draws, times = np.random.default_rng(seed).spawn(2)
    if data is None:
        # The same generator for every seed, so that the estimated mean does not change the load from seed to seed.
        sizes, durations_s = _by_quantiles(np.random.default_rng(0), _POPULATION, gpus)
        mean_gpu_s = float(np.mean(sizes * durations_s))
        sizes, durations_s = _by_quantiles(draws, jobs, gpus)
    else:
        sizes, durations_s = _rows(data / PHILLY_FILE, gpus)
        mean_gpu_s = float(np.mean(sizes * durations_s))
        places = draws.integers(len(sizes), size=jobs)
        sizes, durations_s = sizes[places], durations_s[places]
    arrivals_s = poisson_s(times, jobs, mean_gpu_s, gpus, load)
    made = tuple(
        TraceJob(
            name=f"job-{number}",
            job_class=job_class("Philly", int(size)),
            arrival_s=arrival_s,
            phases=(a_second_each(float(duration_s)),),
            gpus=int(size),
        )
        for number, (arrival_s, size, duration_s) in enumerate(zip(arrivals_s, sizes, durations_s, strict=True))
    )
    note = f"{_QUANTILES if data is None else _DRAWN}, for {counted(gpus, 'GPU')} at a load of {load:g}; {_PHILLY_NOTE}"
    return Trace(f"philly, seed {seed}", "generated", made, note)


def _rows(path: Path, gpus: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """GPUs and durations (s) of the jobs of a trace that ask for at most `gpus` GPUs."""
    rows = [(job.gpus, job.service_s) for job in read(path).jobs if job.gpus <= gpus]
    if not rows:
        raise UsageError(f"{path} has no jobs of {counted(gpus, 'GPU')} or fewer")
    sizes, durations_s = zip(*rows, strict=True)
    return np.array(sizes, np.int64), np.array(durations_s, np.float64)


def _by_quantiles(rng: np.random.Generator, jobs: int, gpus: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """GPUs and durations (s) of `jobs` jobs, drawn by shares and quantiles."""
    groups = {size: group for size, group in GROUPS.items() if size <= gpus}
    counts = np.array([group.jobs for group in groups.values()], np.float64)
    sizes = rng.choice(np.array(list(groups), np.int64), jobs, p=counts / counts.sum())
    levels = rng.random(jobs)
    durations_s = np.empty(jobs)
    for size, group in groups.items():
        these = sizes == size
        durations_s[these] = np.exp(np.interp(levels[these], LEVELS, np.log(group.durations_s)))
    return sizes, np.round(durations_s, 3)


SALUS_FILE = Path("salus", "workloads.csv")
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
    """Job that the generator may draw.

    Source: Yu and Chowdhury, "Salus: Fine-Grained GPU Sharing Primitives for Deep Learning Applications", MLSys 2020.

    With the catalogue that its repository publishes (`salus/workloads.csv`: name, JCT alone, peak memory, iterations,
    command), the generator draws jobs from its rows. The catalogue lists a class of jobs in several lengths. The
    iteration time is the slope between the shortest and the longest, and the rest of the JCT is the start. The
    generator ignores the lengths in the names, since one of them, the second `vgg16_100_1min`, is wrong.

    Without the catalogue, only the models, their batch sizes (`benchmarks/driver/workload.py` of that repository) and
    the lengths of 1, 5 and 10 minutes are known. All are equally likely. Iteration times and memory are unknown.
    """

    job_class: str
    model: str
    phase: Phase
    startup_s: float
    memory: MemoryDemand | None

    @property
    def service_s(self) -> float:
        return self.startup_s + self.phase.iterations * self.phase.iteration_s


def salus(jobs: int, seed: int, data: Path | None, gpus: int, load: float) -> Trace:
    """Trace of jobs of one GPU each, which arrive by a Poisson process.

    Raises:
        UsageError: The catalogue cannot be read.
        InvalidJobFile: The file has faults; the error lists them.
    """
    entries = _published() if data is None else _catalogue(data / SALUS_FILE)
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


SEARCH_KINDS = ("asha", "bohb", "bohb-parallel", "halving")

REDUCTION, STEPS = 3, 81
"""Reduction factor (one trial in three goes on from a rung), and number of steps of a whole trial."""

STEP_ITERATIONS, ITERATION_S = 600, 0.1
SPREAD = 0.5
"""Standard deviation of the logarithm of the iteration time among the trials of a search: a factor of 1.6."""

DOUBLING = 1.8
"""Speed on twice as many GPUs / speed on half of them. Gavel measured 19 models and batch sizes on one and on two V100;
their median is 1.81 (simulation_throughputs.json; Narayanan et al., OSDI 2020)."""

MEMORY = MemoryDemand(1 << 30, 2 << 30)

_SEARCH_NOTE = (
    "learning curves, iterations of about 0.1 s with a spread of 1.6 to 1, 1 GiB kept and 2 GiB ephemeral are invented;"
    " on twice as many GPUs a trial has 1.8 times the speed"
)


def search(
    kind: str,
    trials: int,
    seed: int,
    gpus: int,
    widest: int = 8,
    doubling: float = DOUBLING,
    spread: float = SPREAD,
) -> Trace:
    """Trace of one search.

    ::

        halving   all trials at once; at 1, 3, 9, 27 of 81 steps trials wait for each other, and a third goes on
        asha      twice as many trials at once as GPUs; a trial below the best third of a rung ends there
        bohb      brackets of halving, one after the other: many short trials, ... , few long ones
        bohb-parallel  the same brackets, all at once

    Each trial reports a learning curve, which falls from 1 to its own limit. The beginning of a curve does not reveal
    the limit with certainty. Sources of the schedules: Jamieson and Talwalkar, AISTATS 2016; Li et al., MLSys 2020; Li
    et al., "Hyperband", JMLR 2018; Falkner et al., "BOHB", ICML 2018. Better draws from bracket to bracket replace the
    model of BOHB. Iteration times differ from trial to trial, since the search covers width and batch size.

    Args:
        kind: One of `SEARCH_KINDS`.
        trials: Number of trials of `halving` and `asha`; of the first bracket of `bohb` and `bohb-parallel`.
        gpus: GPUs of the cluster; `asha` runs up to twice as many trials at once.
        widest: Most GPUs that a trial can use.
        doubling: Speed on twice as many GPUs / speed on half of them; 2 is linear.
        spread: Standard deviation of the logarithm of the iteration time.
    """
    random = np.random.default_rng(seed)
    speedups = tuple(float(wide ** np.log2(doubling)) for wide in range(2, widest + 1))
    if kind == "asha":
        made = _trials("asha", trials, random, speedups, spread)
        sweeps = [TraceSweep("asha", made, 2 * gpus, StoppingSpec("asha", 1, REDUCTION, STEPS))]
    elif kind == "halving":
        made = _trials("halving", trials, random, speedups, spread)
        sweeps = [TraceSweep("halving", made, trials, StoppingSpec("halving", 1, REDUCTION, STEPS))]
    else:
        sweeps = list(_brackets(trials, random, speedups, spread, parallel=kind == "bohb-parallel"))
    return Trace(f"{kind}, seed {seed}", "generated", (), _SEARCH_NOTE, tuple(sweeps))


def _brackets(
    trials: int, random: np.random.Generator, speedups: tuple[float, ...], spread: float, parallel: bool
) -> Iterator[TraceSweep]:
    """Brackets of Hyperband: from many trials that begin with one step to few trials that do all steps."""
    rungs = round(np.log(STEPS) / np.log(REDUCTION))
    before = ""
    for place in range(rungs + 1):
        # Each bracket spends about as many steps as the first: Li et al., JMLR 2018, algorithm 1.
        count = max(1, int(np.ceil((rungs + 1) / (rungs + 1 - place) * trials / REDUCTION**place)))
        name = f"bracket-{place}"
        early_stopping = StoppingSpec("halving", REDUCTION**place, REDUCTION, STEPS)
        made = _trials(name, count, random, speedups, spread, better=place)
        yield TraceSweep(name, made, count, early_stopping, after="" if parallel else before)
        before = name


def _trials(
    sweep: str, count: int, random: np.random.Generator, speedups: tuple[float, ...], spread: float, better: int = 0
) -> tuple[TraceTrial, ...]:
    """Trials with learning curves.

    Args:
        better: Progress of the sampler: the limit of a curve is the best of 1 + `better` draws.
    """
    made = []
    for number in range(count):
        limit = float(random.random(better + 1).min())
        pace = float(random.uniform(0.3, 1.0))
        steps = np.arange(1, STEPS + 1)
        noise = random.normal(0.0, 0.02, STEPS)
        curve = limit + (1.0 - limit) * steps**-pace + noise
        iteration_s = ITERATION_S * float(np.exp(random.normal(0.0, spread)))
        job = TraceJob(
            name=f"{sweep}-{number}",
            job_class=f"{sweep}-{number}",
            arrival_s=0.0,
            phases=(Phase(STEPS * STEP_ITERATIONS, iteration_s),),
            memory=MEMORY,
            speedups=speedups,
        )
        made.append(TraceTrial(job, tuple(float(each) for each in curve)))
    return tuple(made)


FACTOR = 3
FIRST_ITERATIONS = 600
SWEEP_ITERATION_S = 0.1
SWEEP_MEMORY = MemoryDemand(1 << 30, 2 << 30)

_NOTE = (
    "trials of one class by successive halving, the best third of each rung going on to three times its length; which"
    " are the best is drawn, and a trial's whole length is known from its start; iterations of 0.1 s, 1 GiB kept and 2"
    " GiB ephemeral are invented"
)


def sweep(jobs: int, seed: int) -> Trace:
    """Trace of `jobs` trials of one GPU each, all of which arrive at time 0.

    ::

        rung 0   ████ ████ ████ ████ ████ ████ ████ ████ ████     9 trials, a minute each
        rung 1   ████████ ████████ ████████                       the best third goes on to 3 minutes
        rung 2   ████████████████                                 the best third of these goes on to 9 minutes

    Source: successive halving, Jamieson and Talwalkar, AISTATS 2016, with the factor of 3 of Li et al., "Hyperband",
    JMLR
    2018. Times and memory are invented round numbers; only the shape matters.
    """
    rungs = [0] * jobs
    order = np.random.default_rng(seed).permutation(jobs)
    left = jobs
    while left >= FACTOR:
        left //= FACTOR
        for place in order[:left]:
            rungs[place] += 1
    made = tuple(
        TraceJob(
            f"trial-{number}",
            "sweep",
            0.0,
            (Phase(FIRST_ITERATIONS * FACTOR**rung, SWEEP_ITERATION_S),),
            memory=SWEEP_MEMORY,
        )
        for number, rung in enumerate(rungs)
    )
    return Trace(f"sweep, seed {seed}", "generated", made, _NOTE)


KINDS = ("salus", "philly", "sweep")
"""Kinds of generated traces of jobs; `searches.KINDS` are the kinds of sweeps."""

ALL_KINDS = (*KINDS, *SEARCH_KINDS)

_MOST_JOBS = 10_000_000

SALUS_GPUS, SALUS_LOAD = 1, 2.34
"""One GPU, as in the paper, and the load at which 100 jobs of the catalogue have the paper's mean JCT under FIFO, 170.6
min (mean of 200 seeds). The jobs arrive in less than half of the time that they take."""

PHILLY_GPUS, PHILLY_LOAD = 400, 0.94
"""GPUs and load of the Philly trace: its GPU-seconds / those of 400 GPUs from its first arrival to its last."""


def generate(
    kind: str,
    jobs: int,
    seed: int,
    data: Path | None = None,
    *,
    gpus: int | None = None,
    load: float | None = None,
) -> Trace:
    """Generated trace of one kind.

    Args:
        kind: One of `KINDS` or of `searches.KINDS`.
        jobs: Number of jobs; for `searches.KINDS`, number of trials (of the first bracket for `bohb`).
        data: Folder with `salus/workloads.csv` and `philly/philly_jobs.csv`; None for published figures.
        gpus: Number of GPUs that the load refers to; no job asks for more. None for the default of the kind.
        load: Work that arrives / work that the GPUs can do. Sweeps ignore it: their trials arrive at once or when the
            scheduler asks for them.

    Raises:
        UsageError: An argument is out of range, or a file of `data` cannot be read.
        InvalidJobFile: A file of `data` has faults; the error lists them.
    """
    if kind not in ALL_KINDS:
        raise UsageError(f"--generate {kind}: expected one of {', '.join(ALL_KINDS)}", did_you_mean(kind, ALL_KINDS))
    if not 1 <= jobs <= _MOST_JOBS:
        raise UsageError(f"{jobs} jobs: expected 1 to {_MOST_JOBS}")
    if seed < 0:
        raise UsageError(f"seed {seed}: expected 0 or more")
    if gpus is not None and gpus < 1:
        raise UsageError(f"{gpus} GPUs: expected 1 or more")
    if load is not None and not (isfinite(load) and load > 0.0):
        raise UsageError(f"--load {load:g}: expected a positive number")
    match kind:
        case "salus":
            return salus(jobs, seed, data, gpus or SALUS_GPUS, load or SALUS_LOAD)
        case "philly":
            return philly(jobs, seed, data, gpus or PHILLY_GPUS, load or PHILLY_LOAD)
        case "sweep":
            return sweep(jobs, seed)
        case _:
            return search(kind, jobs, seed, gpus or 1)
