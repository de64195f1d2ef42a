"""Cost of taking turns: the hooks, the hand-over itself, and N jobs in one lane against the sum of their times alone.

The hooks are measured in one process, which trains with them and without them in turn.

Alone means in an ordinary process, in the user's own environment. A virtual machine may change its speed by a factor of
1.7 from one minute to the next, so the jobs of the lane are stopped every few seconds to measure alone in between; the
figure is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean

from ecoshare.lane.supervisor.attempt_process import usage
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.tables.table_layout import Slot, SlotState
from ecoshare.lane.turn import LaneTurn
from scripts.bench.benchmarking import JOBS, Figure, Options, median, percentile, run_benchmark, say
from scripts.bench.job_file import JobEntry, write_jobs

JOB = JOBS / "turns_job.py"
WATCHED = JOBS / "watched_job.py"
WANTED = {("1", 5): "<= 1.02", ("1", 20): "<= 1.01", ("default", 5): "<= 1.05", ("default", 20): "<= 1.03"}


def handover(jobs: int, turns: int) -> list[Figure]:
    """Time from the boundary at which a holder gives up its turn until the next holder runs on, without work."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        table = LaneTable.create(Path(folder) / "lane")
        results = [Path(folder) / f"{slot}.json" for slot in range(jobs)]
        pids = []
        for slot in range(jobs):
            table.seat(slot)
        for slot in range(jobs):
            pid = os.fork()
            if pid == 0:
                results[slot].write_text(json.dumps(_hand_over(LaneTable(table.path), slot, turns)))
                os._exit(0)
            pids.append(pid)
        for pid in pids:
            os.waitpid(pid, 0)
        latencies_us = [1e6 * each for result in results for each in json.loads(result.read_text())]
    return [
        Figure(f"hand-over p50, {jobs} jobs", median(latencies_us), "us", "<= 50", "decision and wake-up, no drain"),
        Figure(f"hand-over p95, {jobs} jobs", percentile(latencies_us, 0.95), "us"),
    ]


def _hand_over(table: LaneTable, slot: int, turns: int) -> list[float]:
    turn = LaneTurn(table, slot)
    mine = table.slots[slot]
    latencies = []
    turn.take()
    while any(slot.seat == SlotState.AWAY for slot in table.slots[: table.header.used]):
        time.sleep(0.001)  # the first would be done before the others have begun
    for _ in range(turns):
        table.header.quantum_s = 0.0
        before = mine.handovers
        turn.offer(lambda: None)
        if mine.handovers != before:
            latencies.append(mine.since_s - table.header.handed_s)
    turn.leave()
    return latencies


class Alone:
    """Process that trains on demand, in the user's own environment."""

    def __init__(self, threads: str) -> None:
        environment = dict(os.environ) if threads == "default" else {**os.environ, "OMP_NUM_THREADS": threads}
        self._process = subprocess.Popen(
            [sys.executable, str(JOB), "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def time_s(self, layers: int, iterations: int) -> float:
        """Time (s) of a number of iterations."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{layers} {iterations}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def layers_for(self, milliseconds: float) -> int:
        """Number of layers for an iteration of about this time."""
        layers = 4
        for _ in range(4):
            iterations = max(10, round(300 / milliseconds))
            measured_ms = 1e3 * median([self.time_s(layers, iterations) / iterations for _ in range(3)])
            layers = max(1, round(layers * milliseconds / measured_ms))
        return layers

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Shared:
    """Run of N jobs in one lane that train until they are told to end.

    The benchmark reads the lane's table, and stops the jobs' processes while it measures alone. It removes the effects
    of such a stop (an iteration a second long, a longer wait) from the table.
    """

    def __init__(self, arguments: list[list[str]], threads: str) -> None:
        """Start the jobs.

        Args:
            arguments: Arguments of each job.
            threads: Number of threads of each; `default` for that of torch.
        """
        self._folder, jobs = tempfile.TemporaryDirectory(), len(arguments)
        folder = Path(self._folder.name)
        described: list[JobEntry] = [
            {"name": f"j{n}", "script": str(JOB), "args": each} for n, each in enumerate(arguments)
        ]
        path = write_jobs(folder, described)
        # The whole run has the thread count, so that jobs are forked from a warm server that has it too.
        environment = dict(os.environ) if threads == "default" else {**os.environ, "OMP_NUM_THREADS": threads}
        line = [sys.executable, "-m", "ecoshare", "run", str(path), "--device", "cpu", "--json"]
        line += ["--no-profiles"]
        line += ["--policy", "fair", "--jobs-per-lane", str(jobs), "--runs", str(folder / "runs")]
        self._errors = (folder / "errors").open("w+")
        self._controller = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=self._errors, env=environment)
        self._table = self._find_table(folder / "runs" / "latest" / "environment.json")
        self._until(lambda: self._table.header.used == jobs and all(slot.pid for slot in self.slots()))
        self._pids = [slot.pid for slot in self.slots()]
        self._all_have_had_the_turn(3)
        self.pause()

    def slots(self) -> list[Slot]:
        return list(self._table.slots[: self._table.header.used])

    def _find_table(self, environment: Path) -> LaneTable:
        def path() -> Path:
            try:
                return Path(json.loads(environment.read_text())["shared"]) / "lane0"
            except (OSError, KeyError, ValueError):  # the run has not got so far
                return Path("/nowhere")

        self._until(lambda: path().exists() and path().stat().st_size > 0)
        return LaneTable(path())

    def _until(self, condition: Callable[[], bool]) -> None:
        end_s = time.monotonic() + 60.0
        while not condition():
            if self._controller.poll() is not None or time.monotonic() > end_s:
                self._errors.seek(0)
                raise SystemExit(f"the shared run does not go on: {self._errors.read()}")
            time.sleep(0.005)

    def _all_have_had_the_turn(self, times: int) -> None:
        before = [slot.handovers for slot in self.slots()]
        self._until(lambda: all(slot.handovers >= old + times for slot, old in zip(self.slots(), before, strict=True)))

    def pause(self) -> None:
        """Stop every job at once."""
        with self._table.locked():
            self._learned = (
                self._table.header.refill_s,
                [(slot.iteration_s, slot.longest_iteration_s) for slot in self.slots()],
            )
        for pid in self._pids:
            os.kill(pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue all jobs, until each has had the turn and the lane is as before."""
        for pid in self._pids:
            os.kill(pid, signal.SIGCONT)
        self._all_have_had_the_turn(1)
        with self._table.locked():
            self._table.header.refill_s = self._learned[0]
            for slot, (mean_s, longest_s) in zip(self.slots(), self._learned[1], strict=True):
                slot.iteration_s, slot.longest_iteration_s, slot.longest_wait_s = mean_s, longest_s, 0.0
            self._table.refresh()

    def iteration_s(self, window_s: float) -> float:
        """Mean seconds for one iteration of any job, from the end of one to the end of another."""
        first, first_s = self._done()
        time.sleep(window_s)
        last, last_s = self._done()
        return (last_s - first_s) / (last - first)

    def _done(self) -> tuple[int, float]:
        with self._table.locked():
            return sum(slot.iterations for slot in self.slots()), max(slot.last_s for slot in self.slots())

    def held_s(self) -> list[float]:
        """Time (s) for which each job has held its turn."""
        with self._table.locked():
            return [float(usage(slot)["held_s"]) for slot in self.slots()]

    @property
    def longest_wait_s(self) -> float:
        """Longest wait of a job since the jobs went on."""
        return float(max(slot.longest_wait_s for slot in self.slots()))

    @property
    def quantum_s(self) -> float:
        """Present quantum of the lane."""
        return float(self._table.header.quantum_s)

    def close(self) -> None:
        """End the run."""
        for pid in self._pids:
            os.kill(pid, signal.SIGCONT)
        for _ in range(2):
            self._controller.send_signal(signal.SIGINT)
            time.sleep(0.2)
        self._controller.wait()
        self._errors.close()
        self._folder.cleanup()


def watching(layers: int, length_ms: int, by_hand: bool, blocks: int) -> Figure:
    """Median time of an iteration with the hooks over the one without them, on one thread."""
    iterations = 10  # a block is short: the machine may change its speed from one to the next
    line = [sys.executable, str(WATCHED), "--layers", str(layers), "--blocks", str(blocks)]
    line += ["--iterations", str(iterations), *(["--by-hand"] if by_hand else [])]
    done = subprocess.run(line, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found = json.loads(done.stdout)
    kind = "no optimizer" if by_hand else "an optimizer"
    say(f"hooks, {kind}, {length_ms} ms: {found}")
    note = f"without {1e3 * found['plain_s']:.3f} ms, {blocks} blocks of {iterations} each"
    ratio = found["watched_s"] / found["plain_s"]
    return Figure(f"time with hooks / without, {kind}, {length_ms} ms", ratio, "", WANTED["1", length_ms], note)


class TurnsOptions(Options):
    """Options of this benchmark.

    Attributes:
        only: Part to run; None for all.
    """

    only: str | None


def measure(options: TurnsOptions) -> list[Figure]:
    """All figures, or those of turns that are cut."""
    if options.only == "cuts":
        return cut_turns(options.quick)
    figures = handover(2, 4000) + handover(8, 2000)
    cases = [
        (threads, length_ms, jobs)
        for threads in ("1", "default")
        for length_ms in (1, 5, 20, 100)
        for jobs in (2, 4, 8)
        if not options.quick or (threads, length_ms, jobs) in {("1", 5, 4), ("default", 20, 4)}
    ]
    alone: dict[str, Alone] = {"1": Alone("1")}
    for length_ms in (5, 20) if not options.quick else (5,):
        layers = alone["1"].layers_for(length_ms)
        figures += [watching(layers, length_ms, by_hand, 10 if options.quick else 100) for by_hand in (True, False)]
    for threads, length_ms, jobs in cases:
        if threads not in alone:
            alone[threads] = Alone(threads)
        figures += compare(alone[threads], threads, length_ms, jobs, rounds=3 if options.quick else 5)
    for process in alone.values():
        process.close()
    return figures + cut_turns(options.quick)


def cut_turns(quick: bool) -> list[Figure]:
    """Waits and shares where turns are cut inside iterations, or where none are seen."""
    short, long = ["--layers", "10"], ["--layers", "10", "--passes", "2000"]
    cases = {"iterations of 10 s and of 5 ms": [long, short]}
    if not quick:
        cases["six jobs, three without iterations"] = [short, short, short, *[["--unseen"]] * 3]
    figures = []
    for name, arguments in cases.items():
        together = Shared(arguments, "1")
        together.go_on()
        before_s = together.held_s()
        time.sleep(4.0 if quick else 30.0)
        after_s, wait_s = together.held_s(), max(slot.longest_wait_s for slot in together.slots())
        cuts = sum(slot.cuts for slot in together.slots())
        together.close()
        shares = [(after - before) for after, before in zip(after_s, before_s, strict=True)]
        least, most = (len(shares) * each / sum(shares) for each in (min(shares), max(shares)))
        bound_s = 0.25 * len(arguments)
        note = f"bound {bound_s:g} s, {cuts} cuts"
        say(f"{name}: shares {[round(each, 2) for each in shares]} s, longest wait {wait_s:.3f} s, {note}")
        figures += [
            Figure(f"longest wait / bound, {name}", wait_s / bound_s, "", "<= 1.1", note),
            Figure(f"least share / fair, {name}", least, "", ">= 0.95"),
            Figure(f"largest share / fair, {name}", most, "", "<= 1.05"),
        ]
    return figures


def compare(process: Alone, threads: str, length_ms: int, jobs: int, rounds: int) -> list[Figure]:
    """Time of `jobs` jobs in one lane over the sum of their times alone, which is measured before and after."""
    layers = process.layers_for(length_ms)
    iterations = max(5, round(600 / length_ms))

    def alone_s() -> float:
        return process.time_s(layers, iterations) / iterations

    ratios, waits_s, quanta_s, each_s = [], [], [], []
    together = Shared([["--layers", str(layers)]] * jobs, threads)
    before_s = alone_s()
    for _ in range(rounds):
        together.go_on()
        quanta_s.append(together.quantum_s)
        shared_s = together.iteration_s(max(1.5, 2 * jobs * together.quantum_s))
        waits_s.append(together.longest_wait_s)
        together.pause()
        after_s = alone_s()
        ratios.append(shared_s / mean((before_s, after_s)))
        each_s.append(after_s)
        before_s = after_s
    together.close()
    name = f"{jobs} jobs, {length_ms} ms, threads {threads}"
    note = f"alone {1e3 * median(each_s):.2f} ms, quantum {1e3 * median(quanta_s):.0f} ms"
    say(f"{name}: {[round(ratio, 3) for ratio in ratios]} {note}, wait {max(waits_s):.3f} s")
    return [
        Figure(f"time together / sum alone, {name}", median(ratios), "", WANTED.get((threads, length_ms), ""), note),
        Figure(f"longest wait, {name}", max(waits_s), "s", f"<= {jobs * 0.25}"),
    ]


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=("cuts",), help="one part")


def main() -> None:
    """Run it from the command line."""
    run_benchmark("turns", __doc__, measure, TurnsOptions, _add_options)


if __name__ == "__main__":
    main()
