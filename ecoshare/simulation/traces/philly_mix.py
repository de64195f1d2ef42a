"""Generated traces with the job sizes and durations of Microsoft's Philly cluster.

Source: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", ATC 2019.

With the trace (`philly/philly_jobs.csv`), the generator draws rows from it with replacement. Without it, the generator
draws the number of GPUs by its share in the trace, and the duration by quantiles of the jobs with that many GPUs. The
logarithm of the duration is linear between quantiles. A log-normal distribution does not fit. With the mean and
standard deviation of the logarithm, its mean is 5 times that of the jobs of 4 and 8 GPUs, and 22 times that of the jobs
of 16, since many of them fail within minutes.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ecoshare.common.plural import counted
from ecoshare.errors import UsageError
from ecoshare.simulation.traces.any_trace import read
from ecoshare.simulation.traces.arrivals import poisson_s
from ecoshare.simulation.traces.cluster_jobs import a_second_each, job_class
from ecoshare.simulation.traces.job_trace import Trace, TraceJob

FILE = Path("philly", "philly_jobs.csv")
"""Path of the trace in the data folder."""

LEVELS = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)


class JobSizeClass(NamedTuple):
    """Jobs of one number of GPUs.

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
_NOTE = "iterations are not known and taken to be of about a second; jobs arrive by a Poisson process, all day alike"


def generate(jobs: int, seed: int, data: Path | None, gpus: int, load: float) -> Trace:
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
        sizes, durations_s = _rows(data / FILE, gpus)
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
    note = f"{_QUANTILES if data is None else _DRAWN}, for {counted(gpus, 'GPU')} at a load of {load:g}; {_NOTE}"
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
