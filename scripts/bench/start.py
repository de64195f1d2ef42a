"""Cost of starting a job: many jobs of five steps, as fresh interpreters one after the other, and through ecoshare.

Fresh interpreters are timed in two halves around the ecoshare run, in one run of this script. The figure is for the
CPU: on a GPU the making of a context dominates.

The processor time of a job is that of all processes of a run, less that of a run of a single job, which loads torch
just the same. A bare fork is the least that a job in a process of its own could take: a process that has run the
script once forks, the child runs the same steps, and leaves without the end of the interpreter. Nothing is recorded,
limited or measured there. Both alternate.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts.bench.benchmarking import Figure, Options, children_s, median, run_benchmark, say
from scripts.bench.job_file import JobEntry, write_jobs

SCRIPT = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(32, 32)
optimizer = torch.optim.Adam(model.parameters())
for step in range(5):
    loss = model(torch.randn(8, 32)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"{loss:.9g}")
"""

FORKS = """
import os, resource, sys
import torch
torch.set_num_threads(1)  # a fork would lose the threads of its parent
code = compile(open(sys.argv[1]).read(), sys.argv[1], "exec")
exec(code, {})
def cpu_s():
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)
began_s = cpu_s()
for _ in range(int(sys.argv[2])):
    if (pid := os.fork()) == 0:
        exec(code, {})
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)
print((cpu_s() - began_s) / int(sys.argv[2]), file=sys.stderr)
"""

MEMORY = (
    SCRIPT
    + """
import os
def private_kib(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private"))
print(private_kib(os.getpid()), private_kib(os.getppid()))
"""
)

ROUNDS, ALIKE = 3, 300
"""Rounds in which processor time is measured, and the number of jobs of each."""


def measure(options: Options) -> list[Figure]:
    """All figures."""
    jobs, fresh, rounds, alike = (60, 6, 1, 60) if options.quick else (100, 40, ROUNDS, ALIKE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "five.py"
        script.write_text(SCRIPT)
        first_s = [_fresh_s(script) for _ in range(fresh // 2)]
        began_s = time.monotonic()
        loading_s, _ = _shared(folder, script, jobs)
        shared_s = time.monotonic() - began_s
        all_s = first_s + [_fresh_s(script) for _ in range(fresh - fresh // 2)]
        found = [_processor_s(folder, script, alike) for _ in range(rounds)]
        job_mib, server_mib = _private_mib(folder)
    each_s = sum(all_s) / len(all_s)
    say(f"fresh {each_s:.3f} s a job; ecoshare {jobs} jobs in {shared_s:.2f} s, the first began at {loading_s:.2f} s")
    job_s, fork_s = median([each for each, _ in found]), median([each for _, each in found])
    return [
        Figure("fresh interpreter, a job", each_s, "s", note=f"mean of {len(all_s)}"),
        Figure("ecoshare, a job, all included", shared_s / jobs, "s", note=f"{jobs} jobs, with loading torch once"),
        Figure("ecoshare, a job, after loading", (shared_s - loading_s) / jobs, "s"),
        Figure("fresh / ecoshare, all included", each_s * jobs / shared_s, "x", ">= 45"),
        Figure("fresh / ecoshare, after loading", each_s * jobs / (shared_s - loading_s), "x"),
        Figure(
            "processor time of a job",
            1e3 * job_s,
            "ms",
            "<= 40",
            f"of all processes; {alike} jobs, median of {rounds} rounds",
        ),
        Figure("processor time of a bare fork", 1e3 * fork_s, "ms"),
        Figure("job / bare fork", median([job / fork for job, fork in found]), "x"),
        Figure("memory of a job that it shares with no process, at its end", job_mib, "MiB"),
        Figure("the same of the server from which it is forked", server_mib, "MiB"),
    ]


def _private_mib(folder: Path) -> tuple[float, float]:
    """Memory (MiB) that a job of five steps, and the server, have for themselves."""
    script = folder / "memory.py"
    script.write_text(MEMORY)
    _shared(folder, script, 1)
    said = (folder / "runs/latest/jobs/j0/stdout.log").read_text().splitlines()[-1].split()
    job_kib, server_kib = map(int, said)
    return job_kib / 1024, server_kib / 1024


def _processor_s(folder: Path, script: Path, jobs: int) -> tuple[float, float]:
    """Processor time (s) of a job through ecoshare, and of a bare fork."""
    _, many_s = _shared(folder, script, jobs)
    _, one_s = _shared(folder, script, 1)
    line = [sys.executable, "-c", FORKS, str(script), str(jobs)]
    fork_s = float(subprocess.run(line, capture_output=True, text=True, check=True).stderr)
    say(f"processor time: {jobs} jobs {many_s:.2f} s, one {one_s:.2f} s; a bare fork {1e3 * fork_s:.1f} ms")
    return (many_s - one_s) / (jobs - 1), fork_s


def _shared(folder: Path, script: Path, jobs: int) -> tuple[float, float]:
    """Run jobs through ecoshare. Returns the time (s) until the first began, and the processor time (s) of it all."""
    described: list[JobEntry] = [{"name": f"j{n}", "script": str(script)} for n in range(jobs)]
    path = write_jobs(folder, described)
    line = [sys.executable, "-m", "ecoshare", "run", str(path), "--device", "cpu", "--json", "--no-profiles"]
    before_s = children_s()
    done = subprocess.run(
        [*line, "--policy", "fair", "--runs", str(folder / "runs")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["jobs"][0]["start_s"], children_s() - before_s


def _fresh_s(script: Path) -> float:
    began_s = time.monotonic()
    subprocess.run([sys.executable, str(script)], check=True, capture_output=True)
    return time.monotonic() - began_s


def main() -> None:
    """Run it from the command line."""
    run_benchmark("start", __doc__, measure, Options)


if __name__ == "__main__":
    main()
