"""Ray cluster on this machine, for the tests of a module."""

from __future__ import annotations

import gc
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import tune

WARNINGS = [
    pytest.mark.filterwarnings("ignore:Tip. In future versions of Ray:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""Filters for Ray's own warnings about files and sockets that it leaves to the collector."""


@contextmanager
def cluster(cpus: int, gpus: int = 0, environment: dict[str, str] | None = None) -> Iterator[Path]:
    """Start Ray with these resources; yields the folder of its trials' ledger. Everything is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as name:
        state = Path(name, "state")
        state.mkdir()
        own = {"RAY_USAGE_STATS_ENABLED": "0", "ECOSHARE_STATE": str(state), "HOME": name, **(environment or {})}
        with pytest.MonkeyPatch.context() as patch:
            for key, value in own.items():
                patch.setenv(key, value)
            before, environment_before = signal.getsignal(signal.SIGTERM), dict(os.environ)
            try:
                ray.init(
                    num_cpus=cpus,
                    num_gpus=gpus,
                    include_dashboard=False,
                    log_to_driver=False,
                    object_store_memory=100 << 20,
                    _temp_dir=name,
                    _node_ip_address="127.0.0.1",
                )
                yield state
            finally:
                ray.shutdown()
                signal.signal(signal.SIGTERM, before)  # Ray's own ends this process, and what later tests fork, with 1
                os.environ.clear()  # Ray's PYTHONBREAKPOINT, with which no process of later tests could be forked
                os.environ.update(environment_before)
                gc.collect()  # the files of Tune's logs, while warnings of them are ignored
        end_s = time.monotonic() + 30.0
        while left := _processes_of(Path(name)):
            assert time.monotonic() < end_s, f"processes of Ray are left: {left}"
            time.sleep(0.1)


def run(
    trainable: Any, space: list[dict[str, Any]], folder: Path, callbacks: Sequence[tune.Callback] = (), **options: Any
) -> dict[Any, Any]:
    """Results by seed: one trial for each entry of `space`, which the trial gets as `config["each"]`."""
    tuner = tune.Tuner(
        trainable,
        param_space={"each": tune.grid_search(space)},
        run_config=tune.RunConfig(storage_path=str(folder / "results"), verbose=0, callbacks=list(callbacks)),
        **options,
    )
    return {result.config["each"]["seed"]: result for result in tuner.fit()}


def of(trainable: Any) -> Any:
    """Function of `config["each"]` as a trainable."""

    def call(config: dict[str, Any]) -> Any:
        return trainable(config["each"])

    return call


def book(state: Path) -> Any:
    """Content of the ledger's book."""
    return json.loads((next(state.glob("ecoshare-ledger-*")) / "book").read_text())


def _processes_of(folder: Path) -> list[int]:
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit() and int(each.name) != os.getpid():
            try:
                said = (each / "cmdline").read_bytes() + (each / "environ").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in said:
                found.append(int(each.name))
    return found
