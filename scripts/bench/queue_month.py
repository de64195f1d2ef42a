"""A queue that has served a month of jobs: what its process, its files and its next start take.

::

    a sweep that stays open, with a trial that never ends
    submissions of 100 jobs, one after the other's ends ──► memory and open files after the first tenth and at the end
    SIGKILL while jobs wait ──► up --resume             ──► time until it answers, ends and attempts of the jobs

The jobs have no processes (`queue_month_server.py`), so 100,000 of them pass in minutes. All else is real: submissions
over the socket, plans, database, scheduler and log.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ecoshare.api.queue_client import Queue
from ecoshare.errors import EcoshareError
from ecoshare.record import event_log
from scripts.bench.benchmarking import ROOT, Figure, say
from scripts.bench.queue_month_server import WAITS
from tests.queue.queues import UP
from tests.warm import wait_for

JOBS, QUICK_JOBS, BATCH, LEFT = 100_000, 2_000, 100, 50
MIB = 1 << 20
NAME = "month"


@contextlib.contextmanager
def _up(*options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Context manager: the queue is up; it is killed at the end."""
    words = [sys.executable, "-m", "scripts.bench.queue_month_server", "up", "--name", NAME, *UP, "--lanes", "2"]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen([*words, *options], cwd=ROOT, stderr=errors)
        try:
            wait_for(lambda: _answers() or process.poll() is not None)
            assert process.poll() is None, "the queue did not open"
            yield process
        except BaseException:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10.0)
            errors.seek(0)
            say(errors.read().decode()[-3000:])
            raise
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def _answers() -> bool:
    with contextlib.suppress(EcoshareError):
        return bool(Queue(NAME).status(0).name)
    return False


def _resident_bytes(process: int) -> int:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return 1024 * int(fields["VmRSS"].split()[0])


def _file(folder: Path, names: list[str]) -> Path:
    """Job file: each fourth job waits for the one before it."""
    jobs = [{"name": name, "script": "small.py", "args": [str(number % 10)]} for number, name in enumerate(names)]
    jobs = [{**job, "after": names[number - 1 : number]} if number % 4 == 3 else job for number, job in enumerate(jobs)]
    path = folder / "jobs.yaml"
    path.write_text(json.dumps({"version": 1, "jobs": jobs}))
    return path


def _sweep(folder: Path) -> Path:
    """Job file with a sweep of three trials, one after the other: the first one goes on until it is stopped."""
    sweep = {"grid": {"x": [1, 2, 3]}, "parallel": 1}
    path = folder / "sweep.yaml"
    jobs = [{"name": f"{WAITS}-sweep", "script": "small.py", "sweep": sweep}]
    path.write_text(json.dumps({"version": 1, "jobs": jobs}))
    return path


def month(folder: Path, count: int) -> list[Figure]:
    """Figures of a queue after so many jobs."""
    (folder / "small.py").write_text("")
    home, seen = folder / "state" / "queues" / NAME, dict[int, tuple[int, int]]()
    began_s = time.monotonic()
    with _up() as process:
        queue = Queue(NAME)
        queue.submit(_sweep(folder))
        for first in range(0, count, BATCH):
            queue.submit(_file(folder, [f"job-{number}" for number in range(first, first + BATCH)]))
            wait_for(lambda: len(queue.status(0).jobs) == 1, within_s=600.0)  # the sweep
            done = first + BATCH
            if done in (count // 10, count) or done % (count // 10) == 0:
                files = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
                seen[done] = _resident_bytes(process.pid), files
                say(f"{done:,} jobs: {seen[done][0] / MIB:.0f} MiB, {files} files, {time.monotonic() - began_s:.0f} s")
        waiting = [f"{WAITS}-{number}" for number in range(LEFT)]
        queue.submit(_file(folder, waiting))
        wait_for(lambda: queue.job(waiting[0]).state == "running")
    run = home / "runs" / (home / "runs" / "latest").readlink()
    log = run / "events.jsonl"
    logs_bytes = [each.stat().st_size for each in [*event_log.segments(log), log]]
    began_s = time.monotonic()
    with _up("--resume"):
        resumed_s = time.monotonic() - began_s
        status = Queue(NAME).status(0)
        ended, left = status.more, status.jobs
        Queue(NAME).end("now")
        wait_for(lambda: not _answers(), within_s=600.0)
    (tenth_bytes, tenth_files), (end_bytes, end_files) = seen[count // 10], seen[count]
    note = f"after {count // 10:,} jobs {tenth_bytes / MIB:.0f} MiB, after {count:,} jobs {end_bytes / MIB:.0f} MiB"
    return [
        Figure("jobs of a month", count, ""),
        Figure("memory at the end / after the first tenth", end_bytes / tenth_bytes, "", "<= 1.2", note),
        Figure("open files at the end, beyond those after the first tenth", end_files - tenth_files, "", "<= 4"),
        Figure("log", sum(logs_bytes) / MIB, "MiB", note=f"in {len(logs_bytes)} segments"),
        Figure("largest segment", max(logs_bytes) / MIB, "MiB", "<= 4"),
        Figure("time from the start of `up --resume` to its first answer", resumed_s, "s", note="imports included"),
        Figure("jobs that had ended, after the kill", ended, "", f">= {count}"),
        Figure("jobs that were left, after the kill", len(left), "", f">= {LEFT}"),
    ]
