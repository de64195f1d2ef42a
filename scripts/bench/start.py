"""Cost of starting a job: many jobs of five steps, as fresh interpreters one after the other, and through ecoshare.

Fresh interpreters are timed in two halves around the ecoshare run, in one run of this script. The figure is for the
CPU: on a GPU the making of a context dominates.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts.bench.benchmarking import Figure, Options, run_benchmark, say
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


def measure(options: Options) -> list[Figure]:
    """All figures."""
    jobs, fresh = (60, 6) if options.quick else (100, 100)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "five.py"
        script.write_text(SCRIPT)
        described: list[JobEntry] = [{"name": f"j{n}", "script": str(script)} for n in range(jobs)]
        path = write_jobs(folder, described)
        first_s = [_fresh_s(script) for _ in range(fresh // 2)]
        began_s = time.monotonic()
        line = [sys.executable, "-m", "ecoshare", "run", str(path), "--device", "cpu", "--json"]
        line += ["--no-profiles", "--policy", "fair"]
        done = subprocess.run([*line, "--runs", str(folder / "runs")], capture_output=True, text=True, check=False)
        shared_s = time.monotonic() - began_s
        assert done.returncode == 0, done.stderr
        all_s = first_s + [_fresh_s(script) for _ in range(fresh - fresh // 2)]
    each_s = sum(all_s) / len(all_s)
    loading_s = json.loads(done.stdout)["jobs"][0]["start_s"]
    say(f"fresh {each_s:.3f} s a job; ecoshare {jobs} jobs in {shared_s:.2f} s, the first began at {loading_s:.2f} s")
    return [
        Figure("fresh interpreter, a job", each_s, "s", note=f"mean of {len(all_s)}"),
        Figure("ecoshare, a job, all included", shared_s / jobs, "s", note=f"{jobs} jobs, with loading torch once"),
        Figure("ecoshare, a job, after loading", (shared_s - loading_s) / jobs, "s"),
        Figure("fresh / ecoshare, all included", each_s * jobs / shared_s, "x", ">= 20"),
    ]


def _fresh_s(script: Path) -> float:
    began_s = time.monotonic()
    subprocess.run([sys.executable, str(script)], check=True, capture_output=True)
    return time.monotonic() - began_s


def main() -> None:
    """Run it from the command line."""
    run_benchmark("start", __doc__, measure, Options)


if __name__ == "__main__":
    main()
