"""Reports of the memory observer on real scripts, against figures that follow from their shapes."""

from __future__ import annotations

import ctypes
import gc
import json
import threading
import weakref
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.lane.memory import cpu as cpu_memory
from ecoshare.lane.memory.observer import MemoryObserver
from ecoshare.lane.memory.recording import levels, reduce
from tests.warm import Started

_SCRIPTS = Path(__file__).parent / "memory_scripts"
_FLOAT_BYTES = 4
_MIB = 2**20


def _linear(*sizes: int) -> int:
    """Bytes of the weights and biases of linear layers of these sizes, one after the other."""
    return sum(a * b + b for a, b in pairwise(sizes)) * _FLOAT_BYTES


_MLP_BYTES = _linear(512, 1024, 512)
_BATCH_BYTES = 512 * 512 * _FLOAT_BYTES
_HIDDEN_BYTES = 512 * 1024 * _FLOAT_BYTES
_LAYER_NORM_BYTES = 2 * 128 * _FLOAT_BYTES
_TRANSFORMER_BYTES = (
    5000 * 128 * _FLOAT_BYTES
    + _linear(128, 3 * 128)
    + _linear(128, 128)
    + _linear(128, 512, 128)
    + 2 * _LAYER_NORM_BYTES
)
_CNN_BYTES = (3 * 16 * 9 + 16 + 2 * 16 + 16 * 32 * 9 + 32 + 2 * 32) * _FLOAT_BYTES
_LOSS_BYTES = 4
_STEP_BYTES = 4
"""Size (bytes) of a parameter's step count in the optimizers of Adam's family."""

_PARTS: dict[str, dict[str, int]] = {
    "mlp_sgd": {"parameters": _MLP_BYTES, "other": _BATCH_BYTES + _LOSS_BYTES},
    "mlp_momentum": {
        "parameters": _MLP_BYTES,
        "gradients": _MLP_BYTES,
        "optimizer": _MLP_BYTES,
        "other": _BATCH_BYTES + _LOSS_BYTES,
    },
    "mlp_adam": {
        "parameters": _MLP_BYTES,
        "gradients": _MLP_BYTES,
        "optimizer": 2 * _MLP_BYTES + 4 * _STEP_BYTES,
        "other": _BATCH_BYTES + _LOSS_BYTES,
    },
    # The head has saved its input and the result of its ReLU; the script's batch is that input.
    "held_graph": {
        "parameters": _linear(512, 512) + _MLP_BYTES,
        "graph": _BATCH_BYTES + _HIDDEN_BYTES,
        "other": 2 * _LOSS_BYTES,
    },
    "inference": {"parameters": _linear(512, 2048, 512), "other": _BATCH_BYTES},
    "held_list": {"parameters": _linear(512, 512), "other": 3 * 4 * _MIB + _BATCH_BYTES + _LOSS_BYTES},
    "two_models": {
        "parameters": _linear(512, 1024, 512),
        "optimizer": 2 * _linear(1024, 512) + 2 * _STEP_BYTES,
        "other": _BATCH_BYTES + _LOSS_BYTES,
    },
    "deep_plain": {"parameters": 16 * _linear(256, 256), "other": 1024 * 256 * _FLOAT_BYTES + _LOSS_BYTES},
    "mixed_precision": {
        "parameters": _MLP_BYTES,
        "other": 1024 * 512 * _FLOAT_BYTES + 1024 * 512 * 2 + _LOSS_BYTES,
    },
    "cnn": {
        "parameters": _CNN_BYTES,
        "buffers": 2 * (16 + 32) * _FLOAT_BYTES + 2 * 8,
        "optimizer": _CNN_BYTES,
        "other": 32 * 3 * 32 * 32 * _FLOAT_BYTES + _LOSS_BYTES,
    },
    "views": {
        "parameters": (512 * 512 + 2 * 512) * _FLOAT_BYTES,
        "other": 4096 * 512 * _FLOAT_BYTES + _LOSS_BYTES,
    },
    "transformer": {
        "parameters": _TRANSFORMER_BYTES,
        "optimizer": 2 * _TRANSFORMER_BYTES + 13 * _STEP_BYTES,
        "other": 16 * 64 * 8 + _LOSS_BYTES,
    },
    "accumulation": {"parameters": _MLP_BYTES, "other": 4 * 256 * 512 * _FLOAT_BYTES + _LOSS_BYTES},
    # The gradient is sparse: 64 rows and their numbers. Memory that is shared or on the meta device is not counted.
    "odd_tensors": {
        "parameters": 4000 * 256 * _FLOAT_BYTES,
        "gradients": 64 * 256 * _FLOAT_BYTES + 64 * 8,
        "optimizer": 2 * 4000 * 256 * _FLOAT_BYTES,
    },
}

_SMALL_BYTES = 4096
"""Size (bytes) of scalars and odd tensors that a table need not list."""


@pytest.fixture(scope="module")
def observe(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Function that runs a script once for all tests; it returns the folder with its outputs and the observation."""
    folder = tmp_path_factory.mktemp("memory")

    @cache
    def run(name: str) -> Path:
        done = Started(folder, _SCRIPTS / f"{name}.py", script=_SCRIPTS / "observe.py").done()
        assert done.returncode == 0, done.stderr
        return folder

    return run


@pytest.fixture(scope="module")
def result_of(observe: Callable[[str], Path]) -> Callable[[str], dict[str, Any]]:
    """Function that reads the observation of a script."""

    def read(name: str) -> dict[str, Any]:
        result: dict[str, Any] = json.loads((observe(name) / f"{name}.json").read_text())
        return result

    return read


_SLOW = {
    "cnn",
    "transformer",
    "mlp_sgd",
    "mlp_momentum",
    "deep_plain",
    "deep_checkpointed",
    "mixed_precision",
    "two_models",
    "views",
    "accumulation",
    "held_list",
    "forked_workers",
    "held_graph",
    "inference",
    "own_profiler",
}
"""Scripts that the quick tests leave out."""


_EVERY_CHANGE = {"accumulation", "deep_checkpointed", "transformer"}
"""Scripts of these that CI runs; it leaves the others to the night."""


def _each(names: Iterable[str], longer: pytest.MarkDecorator | None = None) -> list[Any]:
    def mark(name: str) -> pytest.MarkDecorator:
        return longer or (pytest.mark.slow if name in _EVERY_CHANGE else pytest.mark.nightly)

    return [pytest.param(name, marks=[mark(name)] if name in _SLOW else []) for name in names]


@pytest.mark.slow
@pytest.mark.parametrize("name", _each(_PARTS, pytest.mark.nightly))
def test_each_part_is_what_the_shapes_say(name: str, result_of: Callable[[str], dict[str, Any]]) -> None:
    """Else a job's persistent memory, which decides whether it fits a lane, would be wrong or not explained."""
    result = result_of(name)
    for part, size_bytes in result["parts"].items():
        if part in ("graph", "other"):
            assert size_bytes == pytest.approx(_PARTS[name].get(part, 0), abs=_SMALL_BYTES), part
        else:
            assert size_bytes == _PARTS[name].get(part, 0), part
    assert result["live_bytes"] == sum(result["parts"].values())
    assert result["process_bytes"] > result["live_bytes"]
    assert result["note"] == ""


@pytest.mark.nightly
@pytest.mark.parametrize("name", _each(_PARTS))
def test_allocations_and_frees_add_up_to_what_the_walk_finds(
    name: str, result_of: Callable[[str], dict[str, Any]]
) -> None:
    """If two independent ways differ, one of them misses tensors, and the peak is wrong."""
    result = result_of(name)
    assert abs(result["unclosed_bytes"]) <= _SMALL_BYTES
    heights = [level_bytes for _, level_bytes in result["timeline"]]
    assert max(heights) == result["peak_bytes"]
    assert heights[0] == result["peak_bytes"] - result["ephemeral_bytes"]
    assert len(heights) <= 400 and result["events"] >= len(heights) - 1
    times = [at_s for at_s, _ in result["timeline"]]
    assert times == sorted(times) and 0 <= times[-1] <= result["iteration_s"]


def _bounds() -> dict[str, tuple[float, float]]:
    """Least and most bytes that an iteration needs beyond the memory that stays."""
    activation_bytes = 1024 * 256 * _FLOAT_BYTES
    deep_gradients_bytes = 16 * _linear(256, 256)
    # All activations, the gradients on both sides of the last ReLU but one, and those of the last layer.
    deep_bytes = 18 * activation_bytes + _linear(256, 256) + _LOSS_BYTES
    wide_bytes = 1024 * 1024  # elements of the widest activation of the mixed precision script
    cnn_saved_bytes = 12 * _MIB  # results of both convolutions, of the ReLU, and the output: 2 + 4 + 2 + 4
    # The backward pass of the ReLU: its result, the gradients on both sides of it, and those of the second layer.
    at_relu_bytes = 3 * _HIDDEN_BYTES + _linear(1024, 512) + _LOSS_BYTES
    return {
        "mlp_sgd": (at_relu_bytes, at_relu_bytes),
        "inference": (2 * 512 * 2048 * _FLOAT_BYTES, 2 * 512 * 2048 * _FLOAT_BYTES),
        "deep_plain": (deep_bytes, deep_bytes),
        # Four inputs of segments, and the activations inside one of them; and the outputs that it hands back.
        "deep_checkpointed": (8 * activation_bytes, 10 * activation_bytes + deep_gradients_bytes),
        "mixed_precision": (3 * wide_bytes * 2, 3 * wide_bytes * _FLOAT_BYTES),
        "cnn": (cnn_saved_bytes, cnn_saved_bytes + 5 * 4 * _MIB),
        # All gradients, while a quarter of the batch passes; the whole batch would need 6 MiB beside them.
        "accumulation": (_MLP_BYTES + 2 * _MIB, _MLP_BYTES + 6 * _MIB),
        "transformer": (_TRANSFORMER_BYTES, 6 * _TRANSFORMER_BYTES),
    }


@pytest.mark.parametrize("name", _each(_bounds()))
def test_the_peak_is_within_what_the_shapes_allow(name: str, result_of: Callable[[str], dict[str, Any]]) -> None:
    """Else jobs that do not fit would be packed, or jobs that fit would be kept apart."""
    least_bytes, most_bytes = _bounds()[name]
    assert least_bytes <= result_of(name)["ephemeral_bytes"] <= most_bytes


@pytest.mark.slow
def test_checkpointing_shows_as_less_ephemeral_memory(result_of: Callable[[str], dict[str, Any]]) -> None:
    """The walk must not unpack the saved inputs either, since that would run the segments again."""
    plain, checkpointed = result_of("deep_plain"), result_of("deep_checkpointed")
    assert checkpointed["ephemeral_bytes"] < 0.7 * plain["ephemeral_bytes"]
    assert checkpointed["parts"]["parameters"] == plain["parts"]["parameters"]


@pytest.mark.slow
def test_memory_of_others_is_counted_apart(result_of: Callable[[str], dict[str, Any]]) -> None:
    """Arrays of numpy and shared memory are not the allocator's: its events would never explain them."""
    assert result_of("held_list")["foreign_bytes"] == 12_000_000 * 4
    assert result_of("odd_tensors")["foreign_bytes"] == pytest.approx(4_000_000, abs=_SMALL_BYTES)


@pytest.mark.slow
@pytest.mark.parametrize("script", _each(sorted(path.stem for path in _SCRIPTS.glob("*.py") if path.stem != "observe")))
def test_a_script_prints_the_same_to_the_bit(script: str, observe: Callable[[str], Path]) -> None:
    """Losses, random numbers and warnings must not change under observation."""
    observed = observe(script)
    for stream in ("out", "err"):
        alone, watched = ((observed / f"{script}.{mode}.{stream}").read_text() for mode in ("alone", "observed"))
        # The script's own torch.profiler prints lines with the time of day.
        assert _without_times(watched) == _without_times(alone)
    assert "Traceback" not in alone and (observed / f"{script}.alone.out").stat().st_size > 0


def _without_times(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("USDT")]


@pytest.mark.nightly
def test_a_script_that_profiles_itself_is_left_alone(
    observe: Callable[[str], Path], result_of: Callable[[str], dict[str, Any]]
) -> None:
    """Torch allows one profiler a thread, so the script's own would fail to start while ours is on."""
    result = result_of("own_profiler")
    assert result["note"] == "the script uses a profiler itself"
    assert (result["timeline"], result["peak_bytes"]) == ([], None)
    assert result["parts"]["parameters"] == _linear(256, 256)
    assert (
        int((observe("own_profiler") / "own_profiler.observed.out").read_text().splitlines()[-1]) == 3
    )  # one a forward pass


@pytest.mark.slow
def test_forked_workers_do_not_record(
    observe: Callable[[str], Path], result_of: Callable[[str], dict[str, Any]]
) -> None:
    """A worker that inherits the recording would keep an event for each operator until it ends."""
    assert "True" not in (observe("forked_workers") / "forked_workers.observed.out").read_text()
    assert result_of("forked_workers")["events"] > 0


@pytest.mark.slow
def test_a_script_that_ends_early_says_so(result_of: Callable[[str], dict[str, Any]]) -> None:
    """An observation without a whole iteration must give no figure: half an iteration would pass for a peak."""
    result = result_of("short")
    assert result["note"] == "the script ended while it was observed"
    assert result["peak_bytes"] is None
    assert result["parts"]["parameters"] == _linear(256, 256)


# In this process


def _train(observer: MemoryObserver, model: torch.nn.Module, iterations: int = 12) -> int:
    """Number of boundaries until the observer was done."""
    for boundary in range(1, iterations + 1):
        if observer.boundary():
            return boundary
        model(torch.ones(8, 64)).sum().backward()
        model.zero_grad()
    return 0


def _log_level() -> int:
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    return ctypes.c_int.in_dll(library, "FLAGS_caffe2_log_level").value


def test_everything_is_put_back_and_nothing_is_kept() -> None:
    """Else the rest of the job would run slower, without output, or with tensors that it has freed."""
    profiler: Any = torch.autograd.profiler
    before = (_log_level(), profiler._enable_profiler, profiler._prepare_profiler)
    observer, model = MemoryObserver("cpu"), torch.nn.Linear(64, 64)
    held = weakref.ref(model)
    assert _train(observer, model) == 5
    result = observer.result()
    after = (_log_level(), profiler._enable_profiler, profiler._prepare_profiler)
    assert after == before
    assert not torch._C._autograd._profiler_enabled()
    assert cpu_memory._recorders == []
    assert json.loads(json.dumps(result)) == result
    del model
    assert held() is None


def test_random_states_are_untouched() -> None:
    """A draw by the observer would change every dropout after it."""
    model = torch.nn.Linear(64, 64)
    state = torch.get_rng_state()
    _train(MemoryObserver("cpu"), model)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_failure_ends_the_observation_and_not_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """An observer that raises would end a user's training."""

    def fail() -> list[object]:
        raise MemoryError("no more")

    model = torch.nn.Linear(64, 64)
    observer = MemoryObserver("cpu")
    assert not observer.boundary()
    monkeypatch.setattr(gc, "get_objects", fail)
    assert _train(observer, model) == 1
    monkeypatch.undo()
    assert observer.result()["note"] == "MemoryError: no more"
    assert not torch._C._autograd._profiler_enabled()


def test_boundaries_of_other_threads_end_nothing_and_do_not_go_on_for_ever() -> None:
    """A recording belongs to its thread: if another thread ended it, it would be lost and never switched off."""
    observer, model = MemoryObserver("cpu"), torch.nn.Linear(64, 64)
    assert not observer.boundary()
    done: list[bool] = []
    thread = threading.Thread(target=lambda: done.extend(observer.boundary() for _ in range(70)))
    thread.start()
    thread.join()
    assert done[:60] == [False] * 60 and done[-1]
    assert "thread" in observer.result()["note"]
    assert _train(observer, model) == 1


def test_a_leak_that_a_graph_holds_is_bounded_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that sums losses with their graphs has ever more nodes: the walk visits a bounded number and says so."""
    monkeypatch.setattr("ecoshare.lane.memory.observer._MOST_NODES", 50)
    observer, total = MemoryObserver("cpu"), torch.ones((), requires_grad=True)
    for _ in range(100):
        total = total * 2
    observer.boundary()
    shows = hasattr(torch._C._autograd.SavedTensor, "data")  # torch 2.6 does not
    assert ("graphs of more than 50 nodes" if shows else "this torch does not show") in observer.result()["note"]


_CHANGES = st.lists(st.integers(-(10**6), 10**6), max_size=300)


@given(_CHANGES, st.integers(4, 40))
def test_a_reduced_timeline_keeps_its_peak_and_ends(changes: list[int], most: int) -> None:
    """A peak that is cut off would show a job smaller than it is."""
    points = levels(0, [(float(i + 1), change) for i, change in enumerate(changes)])
    kept = reduce(points, most)
    assert len(kept) <= most
    assert set(kept) <= set(points) and kept == sorted(kept)
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert max(height for _, height in kept) == max(height for _, height in points)


def test_a_reduced_timeline_keeps_the_maxima_that_stand_out() -> None:
    """Ripples between three peaks are dropped."""
    heights = [1000 * (i in (100, 500, 900)) + i % 2 for i in range(1000)]
    kept = reduce([(float(i), height) for i, height in enumerate(heights)], 50)
    assert [at_s for at_s, height in kept if height >= 1000] == [100.0, 500.0, 900.0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_allocator_of_a_device_tells_the_same_story() -> None:
    """Reserved memory covers live memory, and the peak covers the activations and gradients of the shapes."""
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512)).cuda()
    inputs = torch.randn(512, 512, device="cuda")
    observer = MemoryObserver("cuda")
    while not observer.boundary():
        model(inputs).pow(2).mean().backward()
        model.zero_grad()
    result = observer.result()
    assert result["parts"]["parameters"] == pytest.approx(_MLP_BYTES, abs=4 * 512)
    assert result["ephemeral_bytes"] >= 3 * _HIDDEN_BYTES
    assert result["reserved_bytes"] >= result["live_bytes"]
    assert result["peak_reserved_bytes"] >= result["peak_bytes"]
    assert max(height for _, height in result["timeline"]) == pytest.approx(result["peak_bytes"], rel=0.02)
    assert not torch._C._cuda_isHistoryEnabled()
