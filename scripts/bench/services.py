"""Services and training, with one thread each: through ecoshare in one lane, alone, and as plain processes.

- *Many*: 42 services (an MLP, a CNN and a tiny transformer, 14 of each) with Poisson loads that sum to 30 % of a
  processor: in a process each, as threads of one process, and as plain processes. Latencies of the services of a model
  count together, against one such service alone.
- *Beside*: a service that needs 20 % of a processor beside one training job on it. Blind means both as plain processes
  at once; with `nice` the training has the lowest priority.
- *Step*: the load of a service rises by 4 times and falls again, beside training on one processor.

Alone is a plain process, in the same run. Arrivals are equal in all ways. Latencies run from the arrival to the answer.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.bench.benchmarking import Figure, Options, run_benchmark, say
from scripts.bench.services_beside import beside, step
from scripts.bench.services_many import many
from scripts.bench.services_ways import KINDS, request_times_s

PARTS: dict[str, Callable[[Path, bool, Mapping[str, float]], list[Figure]]] = {
    "many": many,
    "beside": beside,
    "step": step,
}
QUICK_PARTS = ("many", "beside")


class ServicesOptions(Options):
    """Options of this benchmark.

    Attributes:
        only: Part to run; None for all.
    """

    only: str | None


def measure(options: ServicesOptions) -> list[Figure]:
    """All figures, or those of one part."""
    times_s = request_times_s(KINDS)
    say("processor time of a request: " + ", ".join(f"{kind} {1000 * each:.2f} ms" for kind, each in times_s.items()))
    figures, quick = list[Figure](), options.quick
    with tempfile.TemporaryDirectory(prefix="bench-services-") as name:
        for part in [options.only] if options.only else QUICK_PARTS if quick else PARTS:
            (folder := Path(name, part)).mkdir()
            figures += PARTS[part](folder, quick, times_s)
    return figures


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=tuple(PARTS), help="one part")


def main() -> None:
    """Run it from the command line."""
    run_benchmark("services", __doc__, measure, ServicesOptions, _add_options)


if __name__ == "__main__":
    main()
