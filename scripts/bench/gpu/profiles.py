"""Profiles and joules against other tools: P, T, context, joules an iteration, and their split between two jobs.

The module is a part of gpu_check.py; alone it is `scripts/gpu_profiles.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scripts.bench.benchmarking import ROOT, Figure, Options, median, run_benchmark, say
from scripts.bench.gpu.shared_run import share
from scripts.bench.job_file import JobEntry

EXAMPLES = ROOT / "examples"
LONG = {
    "cnn": ("--epochs", "100000"),
    "transformer": ("--steps", "1000000"),
    "vae": ("--epochs", "100000"),
    "mlp": ("--epochs", "100000"),
}
ITERATIONS = "1500"

# Runs a script for some steps as it stands, and says what the allocator and nvidia-smi saw.
TRUTH = """
import json, os, runpy, subprocess, sys
import torch
before = torch.cuda.mem_get_info()[0]
from torch.optim.optimizer import register_optimizer_step_post_hook
seen = {"steps": 0}
def stepped(*_):
    seen["steps"] += 1
    if seen["steps"] == 40:
        torch.cuda.synchronize(); torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats()
        seen["kept"] = torch.cuda.memory_reserved()
        seen["process"] = [line.split(", ") for line in subprocess.run(
            ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
            capture_output=True, text=True).stdout.splitlines()]
    if seen["steps"] == 60:
        seen["peak"] = torch.cuda.max_memory_reserved()
        seen["pid"] = os.getpid()
        sys.stderr.write(json.dumps(seen)); sys.stderr.flush()
        os._exit(0)
register_optimizer_step_post_hook(stepped)
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def measure(_options: Options) -> list[Figure]:
    """All figures; a note if there is no GPU."""
    import torch

    if not torch.cuda.is_available():
        return [Figure("GPU", None, "", note="this machine has none")]
    with tempfile.TemporaryDirectory(prefix="gpu-profiles-") as name:
        return figures(Path(name))


def figures(folder: Path) -> list[Figure]:
    """All figures; profiles and runs are kept in `folder`."""
    made = {name: [_profile(folder, name)] for name in LONG}
    found = [figure for name in LONG for figure in _memory(folder, name, made[name][0])]
    for _ in range(2):
        made["transformer"].append(_profile(folder, "transformer"))
    joules = [each["energy"]["per_iteration_j"] for each in made["transformer"] if each["energy"]]
    if len(joules) == 3:
        claimed = made["transformer"][0]["energy"]["relative_error"]
        spread = (max(joules) - min(joules)) / median(joules)
        note = f"{median(joules):.4g} J an iteration, standard error claimed {claimed:.4f}"
        found.append(Figure("joules an iteration, spread of three windows", spread, "", "<= 0.05", note))
    idle = [each["energy"]["idle_w"] for each in made["transformer"] if each["energy"]]
    found.append(Figure("idle power with contexts up", idle[0] if idle else None, "W", note=f"{idle}"))
    return found + _pairs(folder, made)


def _profile(folder: Path, name: str) -> dict[str, Any]:
    say(f"profile of {name}")
    line = [sys.executable, "-m", "ecoshare", "profile", str(EXAMPLES / f"{name}.py"), "--device", "cuda:0", "--json"]
    line += ["--iterations", ITERATIONS, "--runs", str(folder / "runs"), "--profiles", str(folder / "profiles")]
    done = subprocess.run([*line, "--", *LONG[name], "--device", "cuda"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-600:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _memory(folder: Path, name: str, profile: dict[str, Any]) -> list[Figure]:
    """P without context and T against the allocator's, the context against nvidia-smi's."""
    truth = folder / "truth.py"
    truth.write_text(TRUTH)
    line = [sys.executable, str(truth), str(EXAMPLES / f"{name}.py"), *LONG[name], "--device", "cuda"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    try:
        seen = json.loads(done.stderr[done.stderr.rindex('{"steps"') :])
    except ValueError:
        return [Figure(f"memory of {name}", None, "", note=done.stderr[-200:])]
    memory, mib = profile["memory"], 1 << 20
    context = memory["context_bytes"]
    kept = None if memory["persistent_bytes"] is None else memory["persistent_bytes"] - (context or 0)
    figures = [
        Figure(
            f"{name}: P without context",
            None if kept is None else kept / mib,
            "MiB",
            note=f"allocator {seen['kept'] / mib:.1f}",
        ),
        Figure(
            f"{name}: T",
            None if memory["ephemeral_bytes"] is None else memory["ephemeral_bytes"] / mib,
            "MiB",
            note=f"allocator {(seen['peak'] - seen['kept']) / mib:.1f}",
        ),
    ]
    own = [int(used) for pid, used in seen["process"] if int(pid) == seen["pid"] and used.isdigit()]
    said = f"nvidia-smi {own[0] - seen['kept'] / mib:.0f}" if own else "nvidia-smi does not tell this process"
    figures.append(Figure(f"{name}: context", None if context is None else context / mib, "MiB", note=said))
    return figures


def _pairs(folder: Path, made: dict[str, list[dict[str, Any]]]) -> list[Figure]:
    """Joules attributed an iteration in a pair, over the same class's alone; one lane, then two."""
    figures = []
    sizes = {"cnn": ("--epochs", "60"), "transformer": ("--steps", "3000")}
    for lanes in ("1", "2"):
        jobs: list[JobEntry] = [
            {"name": name, "script": str(EXAMPLES / f"{name}.py"), "class": name, "args": [*args, "--device", "cuda"]}
            for name, args in sizes.items()
        ]
        run = share(folder / f"pair-{lanes}", jobs, "--lanes", lanes, "--profiles", str(folder / "pair"))
        for job in run.summary["jobs"]:
            energy = made[job["name"]][0]["energy"]
            alone_j = energy["active_per_iteration_j"] if energy else None
            ratio = job["energy_per_iteration_j"] / alone_j if job["energy_per_iteration_j"] and alone_j else None
            figures.append(Figure(f"{job['name']} attributed over alone, {lanes} lanes", ratio, ""))
    return figures


def main() -> None:
    """Run it from the command line."""
    run_benchmark("gpu_profiles", __doc__, measure, Options, script="gpu_profiles.py")


if __name__ == "__main__":
    main()
