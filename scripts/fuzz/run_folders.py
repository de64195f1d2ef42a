"""Damaged run folders are shown, exported, explained, simulated and resumed, or refused with the name of the file.

The folders are those of two real runs: one in turns with a sweep, a job that fails and a retry, and one with a policy
that chooses neighbours by profiles. Some are cut off in the middle before they are damaged.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from ecoshare.cli.simulate import simulate
from ecoshare.devices.registry import find
from ecoshare.jobs.load import load
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.record.run_folder import RunFolder
from ecoshare.reporting.explanation_text import show
from ecoshare.reporting.exports import export
from scripts.fuzz.commands import Called, called, is_json, judge, nothing_left, started
from scripts.fuzz.damage import damage_bytes, damage_json, damage_json_lines, damage_place, dumped
from scripts.fuzz.rounds import Lost, Play, Round, main, within
from tests.planning import planned
from tests.reporting.profiles import PROFILE
from tests.runtime.running import job_file, slow_steps, words
from tests.warm import ecoshare

LIMIT_S = 8.0

_FAILS = "import sys, time\nprint('about to fail')\ntime.sleep(0.05)\nsys.exit('labels ran out')\n"
_TRIAL = """
import sys, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[1]))
for step in range(3):
    loss = model(torch.ones(2, 4)).square().mean()
    loss.backward()
    optimizer.step()
    print(f"loss={loss.item():.6f}", flush=True)
"""

_WEIGHTS = {
    "plan.json": 4,
    "environment.json": 3,
    "events.jsonl": 6,
    "samples.jsonl": 4,
    "jobs.yaml": 1,
    "supervisor.log": 1,
    "summary.json": 1,
}
_READERS = {"json": 5, "csv": 2, "perfetto": 2, "html": 1, "parquet": 1, "explain": 3, "simulate": 3, "resume": 2}


def prepare(folder: Path) -> Play:
    """Make the two runs."""
    bases = [_in_turns(folder / "turns"), _in_company(folder / "company")]

    def play(one: Round) -> None:
        base = one.dice.choice(bases)
        run = one.folder / "run"
        shutil.copytree(base, run, symlinks=True)
        if one.dice.random() < 0.3:
            _cut_off(one, run)
        for _ in range(one.dice.choice([1, 1, 1, 2, 3])):
            _damage(one, run)
        reader = one.dice.choices(list(_READERS), list(_READERS.values()))[0]
        one.kind = reader
        if reader == "resume":
            _resume(one, run)
        else:
            _read(run, reader)

    return play


def _in_turns(folder: Path) -> Path:
    """Folder of a run with a sweep, a failing job that is tried again, and jobs in turns."""
    folder.mkdir()
    (folder / "fails.py").write_text(_FAILS)
    (folder / "trial.py").write_text(_TRIAL)
    sweep = {"grid": {"lr": [0.1, 0.01]}, "metric": "loss={:f}"}
    path = job_file(
        folder,
        slow_steps("a", 12, 4),
        slow_steps("b", 12, 4, arrival="100 ms"),
        {"name": "bad", "script": "fails.py", "retries": 1},
        {"name": "s", "script": "trial.py", "args": ["{lr}"], "sweep": sweep},
    )
    return _made(path)


def _in_company(folder: Path) -> Path:
    """Folder of a run with a policy that chooses neighbours by their profiles."""
    folder.mkdir()
    path = job_file(folder, slow_steps("a", 20, 4), slow_steps("b", 10, 4))
    store = ProfileStore(folder / "profiles")
    for job in planned(load(path), (find("cpu"),)).jobs:
        store.save(PROFILE.model_copy(update={"job_class": job.spec.job_class}))
    return _made(path, "--objective", "energy", "--profiles", str(store.folder))


def _made(path: Path, *options: str) -> Path:
    line = [each for each in words(path, *options) if each != "--json"]
    done = ecoshare(*line)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"the run to be damaged failed: {done.stderr}")
    return (path.parent / "ecoshare-runs" / "latest").resolve()


def _cut_off(one: Round, run: Path) -> None:
    """Cut a folder off, as a kill of the controller leaves it."""
    (run / "summary.json").unlink(missing_ok=True)
    for name in ("events.jsonl", "samples.jsonl"):
        data = (run / name).read_bytes()
        (run / name).write_bytes(data[: one.dice.randrange(len(data) // 3, len(data))])
    for record in sorted(run.glob("jobs/*/exit-*.json")):
        if one.dice.random() < 0.5:
            record.unlink()
    one.story.append("cut off")


def _damage(one: Round, run: Path) -> None:
    """Damage one file of a run."""
    weights = {run / name: weight for name, weight in _WEIGHTS.items()}
    weights |= dict.fromkeys(sorted([*run.glob("jobs/*/*"), *run.glob("profiles/*")]), 1)
    weights = {path: weight for path, weight in weights.items() if path.is_file() and not path.is_symlink()}
    path = one.dice.choices(list(weights), list(weights.values()))[0]
    name = str(path.relative_to(run))
    way = one.dice.choices(["values", "bytes", "place"], [6, 3, 1])[0]
    data = path.read_bytes()
    try:
        if way == "place":
            what = damage_place(one.dice, path)
        elif way == "values" and path.suffix == ".json":
            changed, what = damage_json(one.dice, json.loads(data))
            path.write_bytes(dumped(changed).encode(errors="surrogatepass"))
        elif way == "values" and path.suffix == ".jsonl" and data:
            data, what = damage_json_lines(one.dice, data)
            path.write_bytes(data)
        else:
            data, what = damage_bytes(one.dice, data)
            path.write_bytes(data)
    except (ValueError, RecursionError):  # it was damaged before
        data, what = damage_bytes(one.dice, data)
        path.write_bytes(data)
    one.story.append(f"{name}: {what}")


def _read(run: Path, reader: str) -> None:
    """Read a folder in this process, and check the result."""
    readers: dict[str, Callable[[], object]] = {
        "explain": lambda: show(run, None, True),
        "simulate": lambda: simulate(run, policy="fifo,srtf", as_json=True),
    }
    done_by = readers.get(reader, lambda: _exported(run, reader))
    with within(LIMIT_S):
        done = called(f"{reader} {run}", done_by)
    _judge(done, run)
    if done.code == 0 and reader in ("json", "explain", "simulate"):
        is_json(done)


def _exported(run: Path, form: str) -> None:
    content = export(RunFolder.open(run), form)
    if form in ("json", "csv"):
        print(content.decode())


def _judge(done: Called, run: Path) -> None:
    """Check that an error names a file of the run, and the line in a log; or the folder, if it is no run's any more."""
    judge(done, named=(f"{run}/", f"{run} is not a run folder", f"{run} is a folder without", f"{run} has no jobs"))
    for name in ("events.jsonl", "samples.jsonl"):
        if done.code and f"{name}: " in done.stderr and (run / name).is_file() and not (run / name).is_symlink():
            raise Lost(f"the error names no line of {name}", done.stderr[:500])


def _resume(one: Round, run: Path) -> None:
    """Resume with the real command: it may repeat the whole run, and must leave nothing."""
    (cwd := one.folder / "cwd").mkdir()
    done = started("run", "--resume", run, "--no-report", cwd=cwd, limit_s=90.0)
    token = _token(run)
    if token:
        nothing_left(token)
    named = (f"{run}/", f"{run} ", "jobs.yaml", "cpu", "job", "processes of")
    judge(done, named)
    if any(cwd.iterdir()):
        raise Lost("a resumed run writes to the working folder", str(list(cwd.iterdir())))


def _token(run: Path) -> str:
    """Token in a folder that may be damaged; empty if none can be read."""
    path = run / "environment.json"
    if not path.is_file() or path.stat().st_size > 1 << 20:
        return ""
    try:
        token = json.loads(path.read_text())["token"]
    except (ValueError, KeyError, TypeError, OSError, RecursionError):
        return ""
    return token if isinstance(token, str) and token.isalnum() and token.isascii() and len(token) == 16 else ""


if __name__ == "__main__":
    main("run_folders", __doc__, prepare)
