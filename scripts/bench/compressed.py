"""Compressed gradients and activations: verdicts of `ecoshare profile --compare`, and runs that confirm them or not.

Each variant of `examples/compressed.py` is profiled once, with both ranks as one job. `--compare` then judges each
against its baseline. After that each variant is run to its end as a gang, in rounds with seeds of their own, and the
runs are judged by the same limits. The link is modelled by delays. Joules are modelled where there is no counter.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

from ecoshare.knowledge.profile import Profile
from ecoshare.reporting.profile_verdict import COST_COUNTS, QUALITY_COUNTS, VariantChange, changes, judged, quality
from scripts.bench.benchmarking import ROOT, Figure, Options, keep_to, run_benchmark, say
from scripts.bench.job_file import JobEntry, write_jobs

EXAMPLE = ROOT / "examples/compressed.py"
ROUNDS, STEPS, MEASURED = 3, 400, 400
"""Rounds of runs, steps of each run, and iterations that a profile measures."""

QUICK_STEPS, QUICK_MEASURED = 60, 40
_VERDICT = re.compile(r"the second (pays|does not pay|is a trade|makes no difference):")


@dataclass(frozen=True)
class Variant:
    """A way to train: its name in job files and figures, and its arguments."""

    name: str
    args: tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """A variant, and the baseline that it is judged against."""

    baseline: Variant
    variant: Variant


@dataclass(frozen=True)
class Trained:
    """A gang that was run to its end.

    Attributes:
        time_s: Time without the start.
        energy_j: Joules in that time, with the idle power of both devices.
        accuracies: Reported accuracies, in order.
    """

    time_s: float
    energy_j: float
    accuracies: list[float | None]


def pairs(quick: bool) -> list[Pair]:
    """All pairs. The last one is a baseline against itself."""
    ways: list[tuple[str, int, str, str, tuple[str, ...]]] = [("mlp", 100, "hook", "none", ("powersgd",))]
    if not quick:
        ways = [("mlp", mbit, "hook", "none", ("fp16", "powersgd")) for mbit in (100, 1000, 10000)]
        ways += [("cnn", mbit, "hook", "none", ("powersgd",)) for mbit in (100, 1000)]
        ways += [("cnn", mbit, "split", "whole", ("fp16", "topk")) for mbit in (100, 10000)]
    found = []
    for model, mbit, way, plain, others in ways:
        options = ("--model", model, "--width", "256", "--mbit", str(mbit), "--report-every", "5")
        first, *rest = (Variant(f"{model}-{way}-{how}-{mbit}", (*options, f"--{way}", how)) for how in (plain, *others))
        found += [Pair(first, each) for each in rest]
    if not quick:
        same = next(pair.baseline for pair in found if pair.baseline.name == "mlp-hook-none-1000")
        found.append(Pair(same, replace(same, name=f"{same.name}-again")))
    return found


def measure(options: Options) -> list[Figure]:
    """All figures."""
    chosen = pairs(options.quick)
    variants = list(dict.fromkeys(each for pair in chosen for each in (pair.baseline, pair.variant)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keep_to(folder)
        for each in variants:
            _profile(folder, each, QUICK_MEASURED if options.quick else MEASURED)
        rounds = [
            _train(folder, variants[:: -1 if number % 2 else 1], number + 1, QUICK_STEPS if options.quick else STEPS)
            for number in range(1 if options.quick else ROUNDS)
        ]
        return list(_figures(folder, chosen, rounds))


def _figures(folder: Path, chosen: Sequence[Pair], rounds: Sequence[dict[str, Trained]]) -> Iterator[Figure]:
    """Figures of all pairs: confirmed verdicts first."""
    each_pair, right, paid = [], 0, 0
    agreed: dict[str, int] = {}
    for pair in chosen:
        files = [folder / f"{each.name}.json" for each in (pair.baseline, pair.variant)]
        one, other = (Profile.model_validate_json(each.read_bytes()) for each in files)
        before = {each.name: each for each in changes(one, other)}
        ran = {each.name: each for each in _run_changes(pair, rounds)}
        told, found = _verdict(*files), judged(list(ran.values()))
        right += told == found
        paid += found == "pays"
        for quantity, change in ran.items():
            same = quantity in before and before[quantity].gain == change.gain
            agreed[quantity] = agreed.get(quantity, 0) + same
        says, is_so = (", ".join(map(str, each.values())) for each in (before, ran))
        note = f"--compare: {told} ({says}); run: {found} ({is_so})"
        say(f"{pair.variant.name}: {'confirmed' if told == found else 'NOT confirmed'}: {note}")
        name = f"{pair.variant.name}: time / {pair.baseline.name}, run"
        each_pair.append(Figure(name, 1.0 + ran["time"].relative, "x", note=note))
    yield Figure("verdicts of --compare that a run confirms / all", right / len(chosen), "", ">= 0.9")
    for quantity, count in agreed.items():
        yield Figure(f"the same of {quantity} alone", count / len(chosen), "")
    yield Figure("variants that pay in a run", float(paid), f"of {len(chosen)}")
    yield from each_pair


def _run_changes(pair: Pair, rounds: Sequence[dict[str, Trained]]) -> Iterator[VariantChange]:
    """Changes from the baseline to the variant, as means of rounds with the errors of these means."""
    both = [(each[pair.baseline.name], each[pair.variant.name]) for each in rounds]
    accuracies = [quality("accuracy", one.accuracies, other.accuracies) for one, other in both]
    for name, values, counts in (
        ("time", [other.time_s / one.time_s - 1 for one, other in both], COST_COUNTS),
        ("joules", [other.energy_j / one.energy_j - 1 for one, other in both], COST_COUNTS),
        ("accuracy", [each.relative for each in accuracies if each is not None], QUALITY_COUNTS),
    ):
        error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
        yield VariantChange(name, fmean(values), error, counts, name == "accuracy")


def _profile(folder: Path, variant: Variant, iterations: int) -> None:
    """Keep the profile of a variant beside the others."""
    line = ["profile", str(EXAMPLE), "--iterations", str(iterations), "--device", "cpu", "--json"]
    line += ["--runs", str(folder / "runs"), "--", "--steps", "100000", *variant.args]
    (folder / f"{variant.name}.json").write_text(_ecoshare(line))
    say(f"profiled {variant.name}")


def _verdict(baseline: Path, variant: Path) -> str:
    """Verdict that `--compare` prints; `open` if it gives none."""
    found = _VERDICT.search(_ecoshare(["profile", str(variant), "--compare", str(baseline)]))
    return found[1] if found is not None else "open"


def _train(folder: Path, variants: Sequence[Variant], seed: int, steps: int) -> dict[str, Trained]:
    """Run each variant to its end as a gang, one after the other."""
    jobs: list[JobEntry] = [
        {
            "name": each.name,
            "script": str(EXAMPLE),
            "args": [*each.args, "--steps", str(steps), "--seed", str(seed)],
            "gpus": 2,
            "launch": "ranks",
        }
        for each in variants
    ]
    line = ["run", str(write_jobs(folder, jobs)), "--device", "cpu/2", "--json", "--no-report", "--no-profiles"]
    line += ["--policy", "fifo", "--lanes", "1", "--jobs-per-lane", "1", "--runs", str(folder / "runs")]
    told = json.loads(_ecoshare(line))
    found = {}
    for job in told["jobs"]:
        time_s = job["finish_s"] - job["start_s"] - job["preparation_s"]
        reports = (folder / "runs/latest/jobs" / job["name"] / "reports.jsonl").read_text().splitlines()
        accuracies = [json.loads(each)["accuracy"] for each in reports]
        found[job["name"]] = Trained(time_s, job["energy"]["value_j"] + told["idle_power_w"] * time_s, accuracies)
    say(f"ran {len(found)} gangs with seed {seed}")
    return found


def _ecoshare(words: Sequence[str]) -> str:
    """Output of a command.

    Raises:
        RuntimeError: The command fails.
    """
    done = subprocess.run([sys.executable, "-m", "ecoshare", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def main() -> None:
    """Run it from the command line."""
    run_benchmark("compressed", __doc__, measure, Options)


if __name__ == "__main__":
    main()
