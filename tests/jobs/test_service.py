"""Valid and wrong values under `service:`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ecoshare.base.service import ARRIVALS, QUEUE, RequestSource, ServiceSpec, service_as_dict, service_of
from ecoshare.errors import InvalidJobFile
from ecoshare.jobs.load import load
from ecoshare.jobs.schema import JobConfig, json_schema
from ecoshare.jobs.service_config import RETRIES, ServiceConfig
from tests.jobs.conftest import WrongFile


def loaded(folder: Path, service: str, more: str = "", defaults: str = "{}") -> JobConfig:
    path = folder / "jobs.yaml"
    path.write_text(
        f"version: 1\ndefaults: {defaults}\njobs:\n- {{name: a, script: train.py, service: {service}{more}}}\n"
    )
    return load(path).jobs[0]


def spec(folder: Path, service: str) -> ServiceSpec:
    found = loaded(folder, service).service
    assert found is not None
    return found.spec


def test_a_service_with_all_keys(folder: Path) -> None:
    (folder / "day.csv").write_text("arrival_s\n0.5\n")
    job = loaded(folder, "{p99: 20 ms, batch: [1, 2, 16], queue: 64, requests: {trace: day.csv, speed: 10}}")
    assert job.service is not None and job.service.requests is not None
    assert job.service.requests.trace == folder / "day.csv" and job.service.requests.speed == 10.0
    assert job.service.spec == ServiceSpec(0.02, (1, 2, 16), 64, RequestSource(arrivals=ARRIVALS))


def test_requests_that_are_drawn(folder: Path) -> None:
    drawn = spec(folder, "{p99: 50 ms, requests: {rate: 40, count: 1000, seed: 3}}")
    assert drawn.requests == RequestSource(rate_per_s=40.0, count=1000, seed=3) and not drawn.is_open_ended
    closed = spec(folder, "{p99: 50 ms, requests: {clients: 4}}")
    assert closed.requests == RequestSource(clients=4) and closed.is_open_ended


def test_a_server_that_sleeps(folder: Path) -> None:
    urls = "sleep: 'http://localhost:8000/sleep?level=1', wake: http://localhost:8000/wake_up"
    found = spec(folder, f"{{p99: 2 s, {urls}, port: 8700}}")
    assert (found.sleep, found.wake) == ("http://localhost:8000/sleep?level=1", "http://localhost:8000/wake_up")
    assert found.port == 8700 and found.is_open_ended
    assert spec(folder, "{p99: 2 s, sleep: 'http://[::1]/s', wake: 'http://[::1]:80/w', port: 81}").port == 81


def test_the_queue_holds_the_largest_batch(folder: Path) -> None:
    """If it failed, a job file would have to say how long the queue is, only because a batch is large."""
    assert spec(folder, "{p99: 1 s}") == ServiceSpec(1.0, (), QUEUE)
    assert spec(folder, "{p99: 1 s, batch: [512]}").queue == 512


@pytest.mark.parametrize(
    ("more", "defaults", "retries"),
    [("", "{}", RETRIES), (", retries: 2", "{}", 2), ("", "{retries: 3}", 3), (", retries: 0", "{retries: 3}", 0)],
)
def test_a_service_is_started_again_unless_the_file_says_otherwise(
    folder: Path, more: str, defaults: str, retries: int
) -> None:
    assert loaded(folder, "{p99: 1 s}", more, defaults).retries == retries
    (folder / "jobs.yaml").write_text("version: 1\njobs: [{name: a, script: train.py}]\n")
    assert load(folder / "jobs.yaml").jobs[0].retries == 0


def test_a_default_that_excludes_a_service_is_taken_back(folder: Path) -> None:
    defaults = "{timeout: 1 min, gpus: 2, preemptible: true}"
    job = loaded(folder, "{p99: 1 s}", ", gpus: 1, preemptible: false", defaults)
    assert (job.timeout_s, job.gpus, job.preemptible) == (60.0, 1, False)


def test_a_service_is_no_default(folder: Path) -> None:
    with pytest.raises(InvalidJobFile, match="each job has its own 'service'"):
        loaded(folder, "null", defaults="{service: {p99: 1 s}}")


@pytest.mark.parametrize(
    "service",
    [
        ServiceSpec(0.05),
        ServiceSpec(0.05, (1, 4), 16, RequestSource(arrivals="/x/arrivals.txt")),
        ServiceSpec(0.05, requests=RequestSource(rate_per_s=2.5, count=3, seed=-1)),
        ServiceSpec(2.0, sleep="http://[::1]/sleep?level=1", wake="http://[::1]/wake_up", port=8700),
    ],
)
def test_a_service_survives_json(service: ServiceSpec) -> None:
    """If it failed, the job's process would serve by other numbers than the scheduler expects."""
    given = service_as_dict(service)
    assert service_of(given) == service
    newer: dict[str, Any] = {**given, "later": 1}
    if newer["requests"] is not None:
        newer["requests"] = {**newer["requests"], "later": 1}
    assert service_of(newer) == service


def test_the_keys_are_in_the_schema_and_described() -> None:
    schema = json_schema()["$defs"]
    keys = {model: schema[model]["properties"] for model in ("ServiceConfig", "RequestConfig")}
    assert list(keys["ServiceConfig"]) == ["p99", "batch", "queue", "requests", "sleep", "wake", "port"]
    assert list(keys["RequestConfig"]) == ["trace", "task", "speed", "rate", "seed", "clients", "count"]
    assert [key for each in keys.values() for key, field in each.items() if not field.get("description")] == []


@pytest.mark.parametrize("p99", [50, 0.05, True, None, "50", "50 q", "-1 ms", "1e3", "nan s"])
def test_a_target_has_a_unit(p99: object) -> None:
    """If it failed, `p99: 50` would be a target of 50 seconds."""
    with pytest.raises(ValidationError, match="expected a duration"):
        ServiceConfig.model_validate({"p99": p99})


@pytest.mark.parametrize("key", ["rate", "speed", "clients", "count", "seed"])
@pytest.mark.parametrize("value", [True, float("nan"), float("inf"), "1_0.5", [1]])
def test_numbers_of_requests(key: str, value: object) -> None:
    way = {} if key in ("rate", "clients") else {"seed": {"rate": 1}}.get(key, {"trace": "x"})
    with pytest.raises(ValidationError, match="expected a"):
        ServiceConfig.model_validate({"p99": "1 s", "requests": {**way, key: value}})


def test_wrong_service(wrong_file: WrongFile, folder: Path) -> None:
    """If it failed, a service would run by a number that its owner did not mean."""
    (folder / "bad.csv").write_text("x,arrival_s\n1, 2\n1,1.5\n1,-1\n1\n")
    (folder / "two.json").write_text('{"tasks": [{"id": "a", "load": {"type": "continuous"}}, {"id": "b"}]}')
    Path("jobs.yaml").write_text(wrong_file.text)
    with pytest.raises(InvalidJobFile) as raised:
        load(Path("jobs.yaml"))
    words = {"{HERE}": repr(str(folder)), **WORDS}
    wanted = [f"jobs.yaml:{line}" for line in wrong_file.mistakes]
    for short, long in words.items():
        wanted = [line.replace(short, long) for line in wanted]
    assert str(raised.value).splitlines() == wanted


WORDS = {
    "{CONTINUOUS}": "a continuous load has no times: each request follows an answer, as with `requests: {clients: 1}`",
}
"""Words of messages that would make the lines of the table too long."""

WORDS["{URL}"] = "expected a URL such as http://127.0.0.1:8000/sleep (host: 127.0.0.1, ::1, localhost), got"
WORDS["{ALL}"] = "a server that sleeps has 'sleep', 'wake' and 'port'"
WORDS["{OWN}"] = "a server that sleeps has a scheduler of its own, and so no"

CASES = r"""
=== several at once
version: 1
jobs:
- name: a
  script: gone.py
  gpus: 2
  service:
    p99: 50
    batch: [1, 0, x]
    queue: 0
    requests: {trace: bad.csv}
- {name: b, script: train.py, service: {p99: 1 s, batsh: [1]}, retries: -1}
--- mistakes
4:11: jobs[0].script: no file 'gone.py' in {HERE}
5:9: jobs[0].gpus: a service runs on one device
7:10: jobs[0].service.p99: expected a duration with its unit, such as '50 ms', got '50'
8:16: jobs[0].service.batch[1]: expected at least 1, got '0'
8:19: jobs[0].service.batch[2]: expected a whole number, got 'x'
9:12: jobs[0].service.queue: expected at least 1, got '0'
10:23: jobs[0].service.requests.trace: bad.csv:3:3: 1.5 follows 2: the times must be in order
10:23: jobs[0].service.requests.trace: bad.csv:4:3: a time below 0: -1
10:23: jobs[0].service.requests.trace: bad.csv:5: expected a time as a number, got nothing
11:51: jobs[1].service.batsh: unknown key 'batsh'; did you mean 'batch'?
11:73: jobs[1].retries: expected at least 0, got '-1'
=== no section
version: 1
jobs:
- {name: a, script: train.py, service: 50 ms}
- {name: b, script: train.py, service: {}}
- {name: c, script: train.py, service: {p99: 0 ms, requests: 5}}
--- mistakes
3:40: jobs[0].service: expected a mapping of keys and values, got '50 ms'
4:40: jobs[1].service: the key 'p99' is missing
5:46: jobs[2].service.p99: expected more than 0, got '0 ms'
5:62: jobs[2].service.requests: expected a mapping of keys and values, got '5'
=== batches
version: 1
jobs:
- {name: a, script: train.py, service: {p99: 1 s, batch: []}}
- {name: b, script: train.py, service: {p99: 1 s, batch: 4}}
- {name: c, script: train.py, service: {p99: 1 s, batch: [4, 4, 2]}}
- {name: d, script: train.py, service: {p99: 1 s, batch: [4, 8], queue: 7}}
--- mistakes
3:58: jobs[0].service.batch: expected a list of batch sizes such as [1, 2, 4, 8], got an empty list
4:58: jobs[1].service.batch: expected a list of batch sizes such as [1, 2, 4, 8], got '4'
5:62: jobs[2].service.batch[1]: 4 follows 4: batch sizes ascend, each once
5:65: jobs[2].service.batch[2]: 2 follows 4: batch sizes ascend, each once
6:73: jobs[3].service.queue: 7 requests do not fill the largest batch, 8
=== requests
version: 1
jobs:
- {name: a, script: train.py, service: {p99: 1 s, requests: {}}}
- {name: b, script: train.py, service: {p99: 1 s, requests: {rate: 1, clients: 2}}}
- {name: c, script: train.py, service: {p99: 1 s, requests: {rate: 1, speed: 2, task: x}}}
- {name: d, script: train.py, service: {p99: 1 s, requests: {clients: 0}}}
- {name: e, script: train.py, service: {p99: 1 s, requests: {clients: 1, seed: 2}}}
- {name: f, script: train.py, service: {p99: 1 s, requests: {rate: 0, count: 1.5}}}
- {name: g, script: train.py, service: {p99: 1 s, requests: {rate: 1e9}}}
--- mistakes
3:61: jobs[0].service.requests: requests have one of 'trace', 'rate' and 'clients'
4:61: jobs[1].service.requests: requests have one of 'trace', 'rate' and 'clients', not rate and clients
5:78: jobs[2].service.requests.speed: 'speed' belongs to 'trace', and these requests have 'rate'
5:87: jobs[2].service.requests.task: 'task' belongs to 'trace', and these requests have 'rate'
6:71: jobs[3].service.requests.clients: expected at least 1, got '0'
7:80: jobs[4].service.requests.seed: 'seed' belongs to 'rate', and these requests have 'clients'
8:68: jobs[5].service.requests.rate: expected more than 0, got '0'
8:78: jobs[5].service.requests.count: expected a whole number, got '1.5'
9:68: jobs[6].service.requests.rate: expected at most 1,000,000, got '1e9'
=== traces
version: 1
jobs:
- {name: a, script: train.py, service: {p99: 1 s, requests: {trace: gone.csv}}}
- {name: b, script: train.py, service: {p99: 1 s, requests: {trace: folder}}}
- {name: c, script: train.py, service: {p99: 1 s, requests: {trace: two.json}}}
- {name: d, script: train.py, service: {p99: 1 s, requests: {trace: two.json, task: a}}}
- {name: e, script: train.py, service: {p99: 1 s, requests: {trace: ''}}}
- {name: f, script: train.py, service: {p99: 1 s, requests: {trace: [x]}}}
--- mistakes
3:69: jobs[0].service.requests.trace: no file 'gone.csv' in {HERE}
4:69: jobs[1].service.requests.trace: 'folder' is a folder, not a file
5:69: jobs[2].service.requests.trace: two.json: it has 2 tasks; choose one with `task:`: a, b
6:69: jobs[3].service.requests.trace: two.json:1:41: {CONTINUOUS}
7:69: jobs[4].service.requests.trace: expected a path, got ''
8:69: jobs[5].service.requests.trace: expected a path, got a list
=== servers that sleep
version: 1
jobs:
- {name: a, script: train.py, service: {p99: 1 s, sleep: http://10.0.0.1:8000/sleep, wake: 5, port: 70000}}
- {name: b, script: train.py, service: {p99: 1 s, sleep: https://localhost/s, wake: 'http://localhost:99999/', port: x}}
- {name: c, script: train.py, service: {p99: 1 s, sleep: 'http://a@localhost/s', wake: 'http://localhost/a b', port: 0}}
- {name: d, script: train.py, service: {p99: 1 s, sleep: http://localhost:8000/s}}
- {name: e, script: train.py, service: {p99: 1 s, wake: http://localhost:8000/w, port: 8700}}
- name: f
  script: train.py
  service:
    p99: 1 s
    sleep: http://localhost:8000/sleep
    wake: http://localhost:8001/wake
    port: 8000
    batch: [1]
    queue: 4
    requests: {rate: 1}
- {name: g, script: train.py, service: {p99: 1 s, sleep: 'http://[::1]:9/s', wake: 'http://[::1]:9/w', port: 8700}}
--- mistakes
3:58: jobs[0].service.sleep: {URL} 'http://10.0.0.1:8000/sleep'
3:92: jobs[0].service.wake: {URL} '5'
3:101: jobs[0].service.port: expected at most 65,535, got '70000'
4:58: jobs[1].service.sleep: {URL} 'https://localhost/s'
4:85: jobs[1].service.wake: {URL} 'http://localhost:99999/'
4:118: jobs[1].service.port: expected a whole number, got 'x'
5:58: jobs[2].service.sleep: {URL} 'http://a@localhost/s'
5:88: jobs[2].service.wake: {URL} 'http://localhost/a b'
5:118: jobs[2].service.port: expected at least 1, got '0'
6:40: jobs[3].service: the keys 'wake' and 'port' are missing: {ALL}
7:40: jobs[4].service: the key 'sleep' is missing: {ALL}
13:11: jobs[5].service.wake: expected the host and the port of 'sleep': one server has both URLs
14:11: jobs[5].service.port: 8000 is the port of the server: clients ask at another one
15:12: jobs[5].service.batch: {OWN} 'batch' here
16:12: jobs[5].service.queue: {OWN} 'queue' here
17:15: jobs[5].service.requests: {OWN} 'requests' here
18:110: jobs[6].service.port: jobs[4] has this port already
=== keys that exclude a service
version: 1
defaults: {launch: ranks}
jobs:
- {name: a, script: train.py, service: {p99: 1 s}}
- {name: b, script: train.py, service: {p99: 1 s}, timeout: 5, gpus: 2, launch: ranks}
- {name: c, script: train.py, service: {p99: 1 s}, launch: ~, iterations: 5, preemptible: true,
   sweep: {grid: {x: [1]}}}
- {name: d, script: train.py, service: {p99: 1 s}, timeout: ~, gpus: 1, launch: ~, isolation: fresh, preemptible: false}
- {name: a, script: train.py}
--- mistakes
4:40: jobs[0].service: a service runs in one process, and 'defaults' set 'launch': write `launch: null` here
5:70: jobs[1].gpus: a service runs on one device
5:81: jobs[1].launch: a service runs in one process
6:75: jobs[2].iterations: a service has requests, and no number of iterations
6:91: jobs[2].preemptible: a service answers requests all the time, so it is not stopped for other jobs
7:11: jobs[2].sweep: a service is one job: it has no sweep
9:10: jobs[4].name: the name 'a' is already taken by jobs[0] on line 4
"""
