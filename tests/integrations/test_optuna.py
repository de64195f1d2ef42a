"""`optimize` with real studies, real processes and closures as objectives, as users call it."""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import optuna
import pytest
import torch
from optuna.samplers import RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from ecoshare.errors import EcoshareError, UnfitEnvironment, UsageError
from ecoshare.integrations.optuna import ERROR, JOB, optimize
from ecoshare.record.run_folder import RunFolder
from ecoshare.reporting.exports import export
from tests.runtime.running import check
from tests.warm import ROOT, Started, ecoshare, wait_for

optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run each test in a folder of its own, and check that it leaves this process unchanged."""
    importlib.import_module("torch._dynamo")  # each server that is forked from here would load it, for a second
    monkeypatch.chdir(tmp_path)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    threads, ours = torch.get_num_threads(), _ours()
    torch.set_num_threads(2)
    yield
    assert Path.cwd() == tmp_path and torch.get_num_threads() == 2
    assert _ours() == ours, "torch adds to the environment when it is imported; nothing of ecoshare's may be there"
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before
    assert [each for each in threading.enumerate() if each.name == "ecoshare"] == []
    torch.set_num_threads(threads)


def _ours() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("ECOSHARE", "GOMP", "OMP", "CUDA"))}


def states(study: optuna.Study) -> list[str]:
    return [trial.state.name for trial in study.trials]


def seeded_training() -> Callable[[optuna.Trial], float]:
    """Objective that refers to tensors, with parallel work of torch that this process has done before."""
    torch.manual_seed(0)
    images = torch.randn(64, 3, 24, 24)
    labels = torch.randint(0, 4, (64,))
    assert (torch.randn(600, 600) @ torch.randn(600, 600)).isfinite().all()

    def objective(trial: optuna.Trial) -> float:
        torch.manual_seed(trial.suggest_int("seed", 1, 5))
        width = trial.suggest_categorical("width", [4, 8, 16])
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, width, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(4)
        )
        model(images)
        optimizer = torch.optim.SGD(model.parameters(), lr=trial.suggest_float("lr", 1e-3, 1e-1, log=True))
        for step in range(6):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            trial.report(loss.item(), step)
        return loss.item()

    return objective


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_the_same_seeds_give_the_same_trials_to_the_bit(tmp_path: Path) -> None:
    objective = seeded_training()
    alone, shared = (optuna.create_study(sampler=RandomSampler(seed=7), study_name="s") for _ in range(2))
    alone.optimize(objective, n_trials=4)
    done = optimize(shared, objective, n_trials=4, lanes=1)
    assert [trial.params for trial in shared.trials] == [trial.params for trial in alone.trials]
    assert [trial.values for trial in shared.trials] == [trial.values for trial in alone.trials]
    assert [trial.intermediate_values for trial in shared.trials] == [
        trial.intermediate_values for trial in alone.trials
    ]
    assert [trial.distributions for trial in shared.trials] == [trial.distributions for trial in alone.trials]
    assert done.summary["state"] == "completed"
    rows = json.loads(export(RunFolder.open(done.run), "json"))["jobs"]
    for trial, row in zip(shared.trials, rows, strict=True):
        assert row["name"] == f"s.{trial.number:05d}" and trial.user_attrs[JOB].endswith(f"/jobs/{row['name']}")
        assert row["value"] == trial.value and row["steps"] == 7
        assert row["values"] == {name: str(value) for name, value in trial.params.items()}
        assert row["iterations"] == 6 and row["jct_s"] > 0 and row["energy"]["value_j"] > 0
    csv = export(RunFolder.open(done.run), "csv").decode()
    assert len(csv.splitlines()) == 5
    check(done.run)


@pytest.mark.nightly
@pytest.mark.parametrize("lanes", [1, 2])
def test_a_study_on_the_disk_goes_on(tmp_path: Path, lanes: int) -> None:
    storage = f"sqlite:///{tmp_path}/study.db"

    def objective(trial: optuna.Trial) -> float:
        return trial.suggest_float("x", -1, 1) ** 2

    study = optuna.create_study(storage=storage, study_name="s", sampler=TPESampler(seed=1))
    optimize(study, objective, n_trials=3, policy="fair", lanes=lanes)
    again = optuna.load_study(storage=storage, study_name="s")
    assert states(again) == ["COMPLETE"] * 3
    optimize(again, objective, n_trials=2, policy="fair", lanes=lanes)
    assert len(study.trials) == 5
    assert len(list((tmp_path / "ecoshare-runs").glob("2*"))) == 2


@pytest.mark.slow
def test_a_trial_has_the_methods_of_optunas(tmp_path: Path) -> None:
    told: dict[str, Any] = {}

    def objective(trial: optuna.Trial) -> float:
        assert isinstance(trial, optuna.trial.BaseTrial)
        assert trial.suggest_float("a", 0.0, 1.0, step=0.25) in (0.0, 0.25, 0.5, 0.75, 1.0)
        assert trial.suggest_int("b", 2, 10, step=4) in (2, 6, 10)
        assert trial.suggest_int("c", 1, 100, log=True) >= 1
        choice = trial.suggest_categorical("d", [None, True, 2, 0.5, "word"])
        assert trial.suggest_categorical("d", [None, True, 2, 0.5, "word"]) == choice
        with pytest.warns(FutureWarning):
            import warnings

            warnings.warn("in the other process it is", FutureWarning, stacklevel=1)
        trial.set_user_attr("list", [1, {"two": 2.0}])
        trial.report(torch.tensor(0.25), 1)  # type: ignore[arg-type]
        assert trial.should_prune() is False
        assert list(trial.params) == ["a", "b", "c", "d"]
        assert trial.distributions["c"] == optuna.distributions.IntDistribution(1, 100, log=True)
        assert trial.user_attrs["list"] == [1, {"two": 2.0}]
        assert trial.datetime_start is not None and trial.number == 0
        assert trial.study.study_name == study.study_name == "s"
        assert trial.study.direction is optuna.study.StudyDirection.MINIMIZE
        assert trial.study is study
        with pytest.raises(ValueError, match="No trials are completed yet"):
            study.best_value  # noqa: B018
        with pytest.raises(RuntimeError, match="in the process that called"):
            study.trials  # noqa: B018
        with pytest.raises(ValueError, match="cannot be told between processes"):
            trial.suggest_categorical("e", [(1, 2), (3, 4)])  # type: ignore[list-item]
        with pytest.raises(TypeError, match="cannot be told between processes"):
            trial.set_user_attr("model", torch.nn.Linear(1, 1))
        with pytest.raises(ValueError, match="low <= high"):
            trial.suggest_float("f", 2.0, 1.0)
        with pytest.raises(TypeError, match="supposed to be a float"):
            trial.report("much", 2)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="must be non-negative"):
            trial.report(1.0, -1)
        return torch.tensor(0.5)  # type: ignore[return-value]

    study = optuna.create_study(study_name="s")
    told.update(optimize(study, objective, n_trials=1, lanes=1).summary)
    assert study.best_value == 0.5
    assert study.trials[0].intermediate_values == {1: 0.25}
    assert told["sweeps"][0]["best"][0]["value"] == 0.5


@pytest.mark.nightly
def test_trials_prune_themselves_as_the_studys_pruner_says(tmp_path: Path) -> None:
    def objective(trial: optuna.Trial) -> float:
        for step in range(4):
            trial.report(float(trial.number), step)
            if trial.should_prune():
                raise optuna.TrialPruned(f"at {step}")
        return float(trial.number)

    study = optuna.create_study(pruner=optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=1))
    done = optimize(study, objective, n_trials=5, lanes=1)
    assert states(study) == ["COMPLETE", "COMPLETE", "PRUNED", "PRUNED", "PRUNED"]
    assert study.trials[2].intermediate_values == {0: 2.0, 1: 2.0} and study.trials[2].value == 2.0
    assert [job["state"] for job in done.summary["jobs"]] == ["completed"] * 2 + ["pruned"] * 3
    assert done.summary["state"] == "completed"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt])
def test_an_exception_ends_the_study_as_in_optuna(tmp_path: Path, kind: type[BaseException]) -> None:
    def objective(trial: optuna.Trial) -> float:
        if trial.number == 1:
            raise kind("no more")
        return 1.0

    study = optuna.create_study()
    with pytest.raises(kind, match="no more") as caught:
        optimize(study, objective, n_trials=4, lanes=1)
    assert states(study) == ["COMPLETE", "FAIL"]
    assert study.trials[1].user_attrs[ERROR] == f"{kind.__name__}: no more"
    (note,) = caught.value.__notes__
    log = Path(note.rpartition(" ")[2])
    assert note.startswith("in trial 1;") and f"{kind.__name__}: no more" in log.read_text()


@pytest.mark.nightly
def test_leaving_the_program_in_an_objective_ends_the_study(tmp_path: Path) -> None:
    study = optuna.create_study()
    with pytest.raises(EcoshareError, match="SystemExit: 3"):
        optimize(study, lambda trial: sys.exit(3), n_trials=4, lanes=1)
    assert states(study) == ["FAIL"]


@pytest.mark.nightly
def test_a_study_in_another_thread(tmp_path: Path) -> None:
    """Such a study gets no signals, and its callbacks run in that thread."""
    seen: list[str] = []
    study = optuna.create_study()

    def search() -> None:
        callback = lambda *_: seen.append(threading.current_thread().name)  # noqa: E731
        optimize(study, lambda trial: 1.0, n_trials=2, lanes=1, callbacks=[callback])

    thread = threading.Thread(target=search, name="other")
    thread.start()
    thread.join()
    assert states(study) == ["COMPLETE"] * 2 and seen == ["other"] * 2


@pytest.mark.slow
def test_an_exception_ends_the_trials_beside_it(tmp_path: Path) -> None:
    class Own(Exception):  # which this process cannot make again: it is not to be found by its name
        pass

    def objective(trial: optuna.Trial) -> float:
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3000):
            model(torch.randn(4, 2)).sum().backward()
            optimizer.step()
            time.sleep(0.01)
            if trial.number == 1 and step == 30:
                raise Own("no more")
        return 1.0

    study = optuna.create_study()
    began_s = time.monotonic()
    with pytest.raises(EcoshareError, match="Own: no more"):
        optimize(study, objective, n_trials=2, policy="fair", lanes=2)
    assert states(study) == ["FAIL", "FAIL"]
    assert study.trials[0].user_attrs[ERROR].startswith("another trial has failed: ")
    assert time.monotonic() - began_s < 25, "30 s is what trial 0 takes, if it is not stopped"


@pytest.mark.slow
def test_what_is_caught_fails_one_trial(tmp_path: Path) -> None:
    class Own(ValueError):
        pass

    def objective(trial: optuna.Trial) -> float:
        if trial.number == 1:
            raise Own("not this one")
        return 1.0 if trial.number else float("nan")

    study = optuna.create_study()
    optimize(study, objective, n_trials=3, lanes=1, catch=(KeyError, ValueError))
    assert states(study) == ["FAIL", "FAIL", "COMPLETE"]
    assert study.trials[1].user_attrs[ERROR].endswith("Own: not this one")


@pytest.mark.slow
@pytest.mark.parametrize(
    "death", ["killed", *(pytest.param(each, marks=pytest.mark.slow) for each in ("exits", "hangs"))]
)
def test_a_process_that_dies_is_one_failed_trial(tmp_path: Path, death: str) -> None:
    def objective(trial: optuna.Trial) -> float:
        if trial.number == 1:
            if death == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if death == "exits":
                os._exit(3)
            while True:  # a sleep would come to its end on a machine that stands still in between
                signal.pause()
        return 1.0

    study = optuna.create_study()
    done = optimize(study, objective, n_trials=3, lanes=1, hang_timeout=0.5 if death == "hangs" else None)
    assert states(study) == ["COMPLETE", "FAIL", "COMPLETE"]
    reason = {"killed": "killed by SIGKILL", "exits": "exit code 3", "hangs": "held its turn for"}[death]
    assert study.trials[1].user_attrs[ERROR].startswith(reason)
    assert [job["state"] for job in done.summary["jobs"]] == ["completed", "failed", "completed"]


@pytest.mark.slow
def test_a_study_does_not_go_on_without_the_server_of_its_lanes(tmp_path: Path) -> None:
    def objective(trial: optuna.Trial) -> float:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(100)
        return 1.0

    study = optuna.create_study()
    with pytest.raises(UnfitEnvironment, match="the server of the lanes has died"):
        optimize(study, objective, n_trials=4, lanes=1)
    assert states(study) == ["FAIL"]


@pytest.mark.slow
def test_callbacks_come_here_in_order_and_may_stop_the_study(tmp_path: Path) -> None:
    seen: list[tuple[int, TrialState, bool]] = []

    def callback(study: optuna.Study, trial: FrozenTrial) -> None:
        seen.append((trial.number, trial.state, threading.current_thread() is threading.main_thread()))
        if trial.number == 2:
            study.stop()

    study = optuna.create_study()
    optimize(study, lambda trial: 1.0, n_trials=9, lanes=1, callbacks=[callback], gc_after_trial=True)
    assert seen == [(number, TrialState.COMPLETE, True) for number in range(3)]
    assert len(study.trials) == 3


@pytest.mark.nightly
@pytest.mark.parametrize("way", ["trial.study", "closure"])
def test_an_objective_may_stop_the_study(tmp_path: Path, way: str) -> None:
    def objective(trial: optuna.Trial) -> float:
        if trial.number == 1:
            (trial.study if way == "trial.study" else study).stop()
        return 1.0

    study = optuna.create_study()
    optimize(study, objective, n_trials=9, lanes=1)
    assert states(study) == ["COMPLETE"] * 2


@pytest.mark.slow
def test_several_objectives(tmp_path: Path) -> None:
    def objective(trial: optuna.Trial) -> tuple[float, float]:
        x = trial.suggest_float("x", 0, 1)
        return x, 1 - x

    study = optuna.create_study(directions=["minimize", "maximize"])
    done = optimize(study, objective, n_trials=4, lanes=1)
    assert states(study) == ["COMPLETE"] * 4
    assert all(trial.values == [trial.params["x"], 1 - trial.params["x"]] for trial in study.trials)
    assert done.summary["state"] == "completed"


@pytest.mark.slow
def test_no_trial_begins_after_the_timeout(tmp_path: Path) -> None:
    study = optuna.create_study()
    optimize(study, lambda trial: time.sleep(0.3) or 1.0, timeout=1.0, lanes=1)  # type: ignore[func-returns-value]
    assert 1 <= len(study.trials) <= 4 and set(states(study)) == {"COMPLETE"}


def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path) -> None:
    study = optuna.create_study()
    with pytest.raises(UsageError, match="n_jobs=2: how many trials are in progress follows from lanes"):
        optimize(study, lambda trial: 1.0, n_trials=1, n_jobs=2)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="takes a study and a function"):
        optimize(lambda trial: 1.0, study)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="control on: expected auto, known or off"):
        optimize(study, lambda trial: 1.0, n_trials=1, control="on")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="memory much"):
        optimize(study, lambda trial: 1.0, n_trials=1, memory="much")
    assert not (tmp_path / "ecoshare-runs").exists()
    (tmp_path / "file").touch()
    with pytest.raises(UnfitEnvironment, match=r"cannot write .*/file"):
        optimize(study, lambda trial: 1.0, n_trials=1, runs="file")
    assert not study.trials


def test_a_process_that_torch_will_not_have_forked_is_refused(tmp_path: Path) -> None:
    """Thread with the name of autograd's own threads, which autograd makes if a GPU is visible."""
    begun, over = threading.Event(), threading.Event()

    def backward() -> None:
        ctypes.CDLL(None).prctl(15, b"pt_autograd_0")  # PR_SET_NAME
        begun.set()
        over.wait()

    thread = threading.Thread(target=backward)
    thread.start()
    begun.wait()
    with pytest.raises(UnfitEnvironment, match="has run a backward pass where a GPU is visible"):
        optimize(optuna.create_study(), lambda trial: 1.0, n_trials=1)
    over.set()
    thread.join()


def test_a_study_in_a_trial_is_refused(tmp_path: Path) -> None:
    def objective(trial: optuna.Trial) -> float:
        with pytest.raises(UsageError, match="this process runs a trial"):
            optimize(optuna.create_study(), objective, n_trials=1)
        return 1.0

    study = optuna.create_study()
    optimize(study, objective, n_trials=1, lanes=1)
    assert states(study) == ["COMPLETE"]


@pytest.mark.nightly
def test_the_example_of_the_docs(tmp_path: Path) -> None:
    script = shutil.copy(ROOT / "examples" / "optuna_study.py", tmp_path)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "'width'" in done.stdout and (tmp_path / done.stdout.split()[-1] / "summary.json").is_file()


PROGRAM = """
import os, signal, sys, time
import optuna, torch
from ecoshare.integrations.optuna import optimize

def objective(trial):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    open(f"began-{trial.number}", "w").close()
    for step in range(steps):
        model(torch.randn(4, 2)).sum().backward()
        optimizer.step()
        time.sleep(0.01)
    while "sleeps" in sys.argv:  # a signal just before a long sleep would be heard after it
        time.sleep(0.05)
    return trial.suggest_float("x", 0, 1)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a test suite in the background ignores it
steps = int(sys.argv[1])
study = optuna.create_study(storage="sqlite:///study.db", study_name="s", load_if_exists=True)
if "handler" in sys.argv:
    signal.signal(signal.SIGINT, lambda number, frame: print("heard", flush=True))
try:
    optimize(study, objective, n_trials=2, policy="fair", lanes=2)
except KeyboardInterrupt:
    print("interrupted", flush=True)
print([trial.state.name for trial in study.trials], flush=True)
"""


def started(tmp_path: Path, *args: str) -> Started:
    """Program in a process of its own, after both its trials have begun."""
    script = tmp_path / "search.py"
    script.write_text(textwrap.dedent(PROGRAM))
    program = Started(*args, script=script, cwd=tmp_path, new_session=True)
    both = [tmp_path / f"began-{number}" for number in range(2)]
    wait_for(lambda: program.poll() is not None or all(each.exists() for each in both))
    assert program.poll() is None, program.communicate()
    return program


@pytest.mark.nightly
def test_a_trial_that_has_to_make_room_begins_again_as_the_same_trial(tmp_path: Path) -> None:
    """Two trials take more than there is. One begins again, with the values that it had."""

    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0, 1)
        trial.set_user_attr("seen", [*trial.user_attrs.get("seen", []), x])
        if os.environ["ECOSHARE_ATTEMPT"] == "1":
            (tmp_path / f"{trial.number}.tmp").write_text(str(os.getpid()))
            (tmp_path / f"{trial.number}.tmp").rename(tmp_path / str(trial.number))
            kept = torch.ones(400 << 20)  # 1.6 GiB
            other = tmp_path / str(1 - trial.number)
            wait_for(other.exists)
            wait_for(lambda: not Path("/proc", other.read_text()).exists())
            del kept
        return x

    study = optuna.create_study()
    done = optimize(study, objective, n_trials=2, policy="fair", lanes=2, memory="3 GiB")
    assert states(study) == ["COMPLETE"] * 2
    attempts = [job["attempts"] for job in done.summary["jobs"]]
    assert sorted(attempts) == [1, 2]
    for trial, each in zip(study.trials, attempts, strict=True):
        assert trial.user_attrs["seen"] == [trial.value] * each, "it is one trial with lasting values"


@pytest.mark.slow
def test_the_draws_of_a_trial_follow_from_the_seeds_of_the_program_and_its_number(tmp_path: Path) -> None:
    """Whatever ran before or beside it. Else a study of a script that seeds once, at its top, never repeats."""

    def objective(trial: optuna.Trial) -> float:
        trial.set_user_attr("drawn", [torch.rand(1).item(), float(numpy.random.rand()), random.random()])
        return 0.0

    def drawn(studies: int, lanes: int) -> list[list[float]]:
        torch.manual_seed(7)
        numpy.random.seed(7)
        random.seed(7)
        made = [optuna.create_study() for _ in range(studies)]
        for study in made:
            optimize(study, objective, n_trials=2, lanes=lanes)
        return [trial.user_attrs["drawn"] for study in made for trial in study.trials]

    found = drawn(studies=2, lanes=1)
    assert drawn(studies=1, lanes=2) == found[:2], "it repeats to the bit"
    assert all(len({draws[place] for draws in found}) == 4 for place in range(3)), "trials and studies differ"


@pytest.mark.nightly
def test_trials_beside_each_other_of_all_shapes(tmp_path: Path) -> None:
    """Values that depend on others, unseeded draws, workers of a `DataLoader`, and a running event loop all work."""
    dataset = torch.utils.data.TensorDataset(torch.arange(12.0))

    def objective(trial: optuna.Trial) -> float:
        if trial.suggest_categorical("kind", ["linear", "loaded"]) == "linear":
            return trial.suggest_float("only here", 0, 1) + torch.rand(1).item()
        loader = torch.utils.data.DataLoader(dataset, batch_size=4, num_workers=1, multiprocessing_context="fork")
        return float(sum(batch.sum().item() for (batch,) in loader) + torch.rand(1).item())

    study = optuna.create_study(sampler=RandomSampler(seed=0))

    async def notebook() -> Any:
        return optimize(study, objective, n_trials=12, policy="fair", lanes=3)

    done = asyncio.run(notebook())
    assert states(study) == ["COMPLETE"] * 12, [trial.user_attrs for trial in study.trials]
    assert len({trial.value for trial in study.trials}) == 12
    assert {len(job["values"]) for job in done.summary["jobs"]} == {1, 2}
    for form in ("html", "perfetto"):
        assert export(RunFolder.open(done.run), form)


@pytest.mark.slow
def test_an_objective_without_a_file(tmp_path: Path) -> None:
    made: dict[str, Any] = {}
    exec("def objective(trial): return 2.0", made)
    study = optuna.create_study(study_name="a name/with: all sorts")
    done = optimize(study, made["objective"], n_trials=1, lanes=1)
    assert study.best_value == 2.0
    assert done.summary["jobs"][0]["name"] == "a-name-with-all-sorts.00000"


@pytest.mark.slow
@pytest.mark.parametrize("args", [(), pytest.param(("handler",), marks=pytest.mark.nightly)])
def test_ctrl_c_ends_the_trials_and_is_passed_on(tmp_path: Path, args: tuple[str, ...]) -> None:
    program = started(tmp_path, "3000", *args)
    os.killpg(program.pid, signal.SIGINT)  # like a terminal
    out, err = program.communicate(timeout=60)
    assert out.splitlines() == ["heard" if args else "interrupted", "['FAIL', 'FAIL']"], err
    study = optuna.load_study(storage=f"sqlite:///{tmp_path}/study.db", study_name="s")
    assert {trial.user_attrs[ERROR] for trial in study.trials} == {"the study was stopped"}


@pytest.mark.nightly
def test_ctrl_c_twice_kills_what_does_not_end(tmp_path: Path) -> None:
    program = started(tmp_path, "0", "sleeps")
    for _ in range(2):
        os.kill(program.pid, signal.SIGINT)
        time.sleep(0.5)  # two at once would be one
    out, err = program.communicate(timeout=60)
    assert out.splitlines() == ["interrupted", "['FAIL', 'FAIL']"], err


@pytest.mark.nightly
def test_sigterm_ends_the_program_when_the_trials_have_ended(tmp_path: Path) -> None:
    program = started(tmp_path, "3000")
    program.send_signal(signal.SIGTERM)
    program.communicate(timeout=60)
    assert program.returncode == -signal.SIGTERM
    assert states(optuna.load_study(storage=f"sqlite:///{tmp_path}/study.db", study_name="s")) == ["FAIL", "FAIL"]


@pytest.mark.nightly
def test_nothing_stays_of_a_program_that_was_killed(tmp_path: Path) -> None:
    """A killed program leaves nothing in the study, either: the next call reports the state of its trials."""
    program = started(tmp_path, "3000")
    study = optuna.load_study(storage=f"sqlite:///{tmp_path}/study.db", study_name="s")
    environment = json.loads((tmp_path / "ecoshare-runs" / "latest" / "environment.json").read_text())
    program.kill()
    program.communicate(timeout=60)
    wait_for(lambda: not Path(environment["shared"]).exists() and not of_run(environment["token"]))
    assert states(study) == ["RUNNING", "RUNNING"]
    optimize(study, lambda trial: 1.0, n_trials=1, lanes=1)
    assert states(study) == ["FAIL", "FAIL", "COMPLETE"]
    assert study.trials[0].user_attrs[ERROR] == "cut off with the process of the study"


def of_run(token: str) -> list[int]:
    from ecoshare.runtime.nodes import cleanup

    return cleanup.members(token)


@pytest.mark.slow
def test_a_run_of_a_study_is_not_resumed_but_optimized_again(tmp_path: Path) -> None:
    optimize(optuna.create_study(), lambda trial: 1.0, n_trials=1, lanes=1)
    done = ecoshare("run", "--resume", "ecoshare-runs/latest")
    assert done.returncode == 2 and "call optimize() with the same study again" in done.stderr
