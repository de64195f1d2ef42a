"""The example of services: its servers answer its client over HTTP beside training."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import demo_services
from tests.runtime.running import EXAMPLES, job_file, settled, start
from tests.warm import wait_for

FOLDER = EXAMPLES / "services"
STEPS = ("--steps", "600")


def free_ports() -> list[int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        return [each.getsockname()[1] for each in (one, two)]


def ask(*urls: str, seconds: str = "1") -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(FOLDER / "ask.py"), *urls, "--seconds", seconds, "--rate", "30"]
    return subprocess.run(line, capture_output=True, text=True, check=False)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_both_servers_answer_beside_training_which_loses_the_same(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    ports = free_ports()
    servers = {"batched": "serve.py", "unmodified": "unmodified.py"}
    jobs = [
        {"name": name, "script": str(FOLDER / script), "args": ["--port", str(port)], "service": {"p99": "1 s"}}
        for (name, script), port in zip(servers.items(), ports, strict=True)
    ]
    jobs.append({"name": "finetune", "script": str(FOLDER / "finetune.py"), "args": [*STEPS]})
    started = start(job_file(tmp_path, *jobs), "--lanes", "1")
    urls = [f"http://127.0.0.1:{ports[0]}/read/", f"http://127.0.0.1:{ports[1]}/"]
    asked = ask(*urls, seconds="60")
    wait_for(lambda: started.poll() is not None)
    assert (started.returncode, asked.returncode) == (0, 0), asked.stdout + asked.stderr
    latest = tmp_path / "ecoshare-runs" / "latest"
    summary = json.loads((latest / "summary.json").read_text())
    for url, job in zip(urls, summary["jobs"], strict=False):
        assert job["service"]["answered"] > 5, f"{url} has no answers"
        assert job["service"]["failed"] == job["service"]["refused"] == 0
    assert [line.split()[0] for line in asked.stdout.splitlines()] == urls
    assert asked.stdout.count("until the server ended; p50") == 2
    assert (latest / "jobs" / "finetune" / "stdout.log").read_bytes() == settled(FOLDER / "finetune.py", STEPS, FOLDER)
    told = demo_services.shown(latest, summary, asked.stdout.splitlines())
    assert told[4].startswith("  batched: ") and "% within 1000 ms, p99 " in told[4]
    assert told[6].startswith("  finetune: 600 iterations, held the turn for ")


@pytest.mark.nightly
def test_a_port_in_use_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as own:
        port = own.getsockname()[1]
        monkeypatch.setattr(demo_services, "URLS", (f"http://127.0.0.1:{port}/",))
        monkeypatch.setattr(sys, "argv", ["scripts/demo", "--services"])
        assert demo_services.main() == 4
        assert capsys.readouterr().err == f"error: port {port} is in use: end the program that listens there\n"
        done = subprocess.run(
            [sys.executable, str(FOLDER / "unmodified.py"), "--port", str(port)], capture_output=True, text=True
        )
    assert (done.returncode, done.stderr) == (1, f"port {port}: Address already in use\n")
