"""Lanes of jobs on an accelerator other than CUDA: a toy, with backward passes in device threads of autograd.

`tests/toy_device` has two devices, streams, events and a lazy start. A process can have it once, so each test has it
in a process of its own. The functions that open this file run there.

It cannot show graphs, an allocator with a limit and a history, or a device that fails: those stay CUDA's
(`tests/driver/cuda_standin.py`).
"""

from __future__ import annotations

import json
import os
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from ecoshare.lane import hooks
from ecoshare.lane.device_sync import DeviceSync, drain
from ecoshare.lane.hooks import Hooks
from ecoshare.lane.iterations import Boundary
from tests import toy_device
from tests.lane.served_lane import ServedLane
from tests.warm import ROOT, fork_script

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(toy_device.COMPILER is None, reason="the toy device is compiled, and there is no C++ compiler"),
]

LONG_S = 30.0
"""Work (s) for which nothing waits: the device only says that it is busy."""


def paced_on_its_own_device() -> None:
    toy_device.load()
    sync = DeviceSync(1)
    toy_device.work(LONG_S, device=0)
    began_s = time.monotonic()
    toy_device.work(0.3, device=1)
    sync.keep()
    toy_device.work(LONG_S, device=1)
    sync.keep()
    assert torch.accelerator.current_device_index() == 0
    assert time.monotonic() >= began_s + 0.3, "the boundary did not wait for the previous one"
    assert not toy_device.is_idle(1), "it waited for all work, so the CPU may not run ahead"
    assert not toy_device.is_idle(0), "it waited for the current device"


def paced_on_the_current_device() -> None:
    toy_device.load()
    sync = DeviceSync(None)
    torch.accelerator.set_device_index(1)
    toy_device.work(LONG_S, device=0)
    began_s = time.monotonic()
    toy_device.work(0.3, device=1)
    sync.keep()
    sync.keep()
    assert time.monotonic() >= began_s + 0.3, "the boundary did not wait for the current device"
    assert not toy_device.is_idle(0), "it waited for another device"


def drained_of_side_streams() -> None:
    toy_device.load()
    toy_device.work(0.01)
    before = torch.accelerator.current_stream()
    torch.accelerator.set_stream(torch.Stream("toy:0"))
    toy_device.work(0.3)
    torch.accelerator.set_stream(before)
    drain()
    assert toy_device.is_idle()


def drained_of_its_own_stream() -> None:
    toy_device.load()
    torch.accelerator.set_stream(torch.Stream("toy:0"))
    toy_device.work(LONG_S)
    torch.accelerator.set_stream(torch.Stream("toy:0"))
    began_s = time.monotonic()
    toy_device.work(0.3)
    drain(alone=False)
    assert time.monotonic() >= began_s + 0.3, "its own work is not done"
    assert not toy_device.is_idle(), "it waited for another job's stream"


def drained_of_several_devices() -> None:
    toy_device.load()
    toy_device.work(0.3, device=0)
    toy_device.work(0.6, device=1)
    drain(devices=(0, 1))
    assert toy_device.is_idle(0) and toy_device.is_idle(1)


def asked_before_its_first_use() -> None:
    sync = DeviceSync()
    sync.keep()
    toy_device.load()
    for _ in range(3):
        sync.keep()
        drain()
    assert not toy_device.is_initialized(), "to ask for the device has started it"
    began_s = time.monotonic()
    toy_device.work(0.3)
    sync.keep()
    sync.keep()
    assert time.monotonic() >= began_s + 0.3, "a device that the script loads later is not paced"


WAITS = (
    paced_on_its_own_device,
    paced_on_the_current_device,
    drained_of_side_streams,
    drained_of_its_own_stream,
    drained_of_several_devices,
    asked_before_its_first_use,
)


class Paced:
    """Receiver of boundaries that keeps the device in step, as a job does.

    Attributes:
        iterations: Training iterations so far.
        amiss: Descriptions of boundaries at places where the job may not yield.
    """

    absence_cost_s = 0.0
    cut_hook = None
    is_waited_for = False

    def __init__(self) -> None:
        self.iterations = 0
        self.amiss: list[str] = []
        self._sync = DeviceSync(1)
        self._thread = threading.get_ident()

    def boundary(self, kind: Boundary) -> None:
        if torch._C._current_graph_task_id() != -1:
            self.amiss.append("inside a backward pass")
        if threading.get_ident() != self._thread:
            self.amiss.append("in another thread")
        self._sync.keep()
        self.count(kind)

    def count(self, kind: Boundary) -> None:
        self.iterations += kind is Boundary.TRAIN

    def leave(self) -> None: ...

    def take(self) -> None: ...


class Training:
    """Loop of 12 batches on a device, for a way to train.

    Attributes:
        places: Thread and current device of each gradient of the first layer.
        losses: Loss of each batch.
    """

    def __init__(self, device: str) -> None:
        torch.manual_seed(0)
        self.places: set[tuple[int, int]] = set()
        self.losses: list[float] = []
        first = nn.Linear(8, 16).to(device)
        first.weight.register_hook(self._see)  # type: ignore[no-untyped-call]
        self.model = nn.Sequential(first, nn.Tanh(), nn.Linear(16, 4).to(device))
        self._root: Callable[[Tensor], Tensor] = self.model
        self._device = device

    def _see(self, _gradient: Tensor) -> None:
        index = torch.accelerator.current_device_index() if self._device != "cpu" else -1
        self.places.add((threading.get_ident(), index))

    def backward(self) -> Iterator[None]:
        """Run the backward pass of each batch."""
        data = TensorDataset(torch.randn(96, 8), torch.randint(0, 4, (96,)))
        for inputs, targets in DataLoader(data, batch_size=8, shuffle=True):
            output = self._root(inputs.to(self._device))
            loss = nn.functional.cross_entropy(output, targets.to(self._device))
            loss.backward()  # type: ignore[no-untyped-call]
            self.losses.append(loss.item())
            yield

    def sgd(self) -> None:
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        for _ in self.backward():
            optimizer.step()
            optimizer.zero_grad()

    def adam(self) -> None:
        optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01, foreach=True)
        for _ in self.backward():
            optimizer.step()
            optimizer.zero_grad()

    def by_hand(self) -> None:
        for _ in self.backward():
            with torch.no_grad():
                for each in self.model.parameters():
                    assert each.grad is not None
                    each.sub_(each.grad, alpha=0.1)
                    each.grad = None

    def accumulation(self) -> None:
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for batch, _ in enumerate(self.backward()):
            if batch % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()

    def in_backward(self) -> None:
        """Step an optimizer for each parameter inside the backward pass, in the thread of the device."""

        def step(optimizer: torch.optim.Optimizer, _parameter: Tensor) -> None:
            optimizer.step()
            optimizer.zero_grad()

        for each in self.model.parameters():
            optimizer = torch.optim.SGD([each], lr=0.1)
            each.register_post_accumulate_grad_hook(partial(step, optimizer))  # type: ignore[no-untyped-call]
        for _ in self.backward():
            pass

    def in_backward_of_functions(self) -> None:
        """Step one optimizer several times inside each backward pass, without any call of a module."""

        def step(_parameter: Tensor) -> None:
            optimizer.step()
            optimizer.zero_grad()

        def forward(inputs: Tensor) -> Tensor:
            weight, bias, *last = parameters
            return nn.functional.linear(torch.tanh(nn.functional.linear(inputs, weight, bias)), *last)

        parameters = list(self.model.parameters())
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        for each in parameters:
            each.register_post_accumulate_grad_hook(step)  # type: ignore[no-untyped-call]
        self._root = forward
        for _ in self.backward():
            pass

    def checkpointed(self) -> None:
        """Reach the parameters in a pass inside the one of each batch alone, without an optimizer."""
        self._root = _Checkpointed(self.model)
        self.by_hand()


class _Checkpointed(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor) -> Tensor:
        output: Tensor = checkpoint(self.inner, inputs.requires_grad_(), use_reentrant=True)
        return output


ITERATIONS = {
    "sgd": 12,
    "adam": 12,
    "by_hand": 12,
    "accumulation": 4,
    "in_backward": 12,
    "in_backward_of_functions": 12,
    "checkpointed": 12,
}
"""Training iterations of each way to train in `Training`."""


def trained(way: str) -> dict[str, Any]:
    """Results of a way to train on the CPU, on the toy, and on the toy under hooks."""
    toy_device.load()
    alone = {}
    for device in ("cpu", "toy:1"):
        training = Training(device)
        getattr(training, way)()
        alone[device] = training.losses
    paced, training = Paced(), Training("toy:1")
    watching = Hooks(paced, accelerator=True)
    watching.install()
    getattr(training, way)()
    watching.finish()
    hooks.forget()
    return {
        "losses": [*alone.values(), training.losses],
        "iterations": paced.iterations,
        "amiss": paced.amiss,
        "places": [(thread == threading.get_ident(), device) for thread, device in training.places],
    }


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    toy_device.library()


@pytest.fixture
def in_child(tmp_path: Path) -> Callable[..., Any]:
    """Call a function of this file in a fresh process, and return what it returns."""

    def call(function: str, *args: str) -> Any:
        script = tmp_path / "child.py"
        script.write_text(
            textwrap.dedent(f"""
                import json, sys, traceback
                sys.path.insert(0, {str(ROOT)!r})
                try:
                    from tests.lane import test_other_accelerator
                    print(json.dumps(test_other_accelerator.{function}(*sys.argv[1:])))
                except BaseException:
                    traceback.print_exc(file=sys.stdout)
                    sys.exit(1)
            """)
        )
        done = fork_script(script, *args, cwd=tmp_path, environment=os.environ)
        assert done is not None
        code, stdout = done
        assert code == 0, stdout.decode()
        return json.loads(stdout)

    return call


@pytest.mark.parametrize("function", [each.__name__ for each in WAITS])
def test_boundaries_and_drains_wait_for_the_work_that_they_mean(in_child: Callable[..., Any], function: str) -> None:
    """If it failed, the next job of a lane would begin while the device works for the previous one."""
    in_child(function)


@pytest.mark.parametrize("way", ITERATIONS)
def test_backward_in_a_device_thread_is_seen_and_stays_the_same(in_child: Callable[..., Any], way: str) -> None:
    """If it failed, a job on a GPU would yield inside a pass, miss iterations, or print other losses."""
    seen = in_child("trained", way)
    assert seen["places"] == [[False, 1]], "the engine has a thread for the device, and it is the current one there"
    assert seen["iterations"] == ITERATIONS[way]
    assert not seen["amiss"]
    on_processors, alone, under_hooks = seen["losses"]
    assert len(set(alone)) == 12
    assert under_hooks == alone == on_processors


SCRIPT = f"""
import signal, sys, threading, time
sys.path.insert(0, {str(ROOT)!r})
import torch
from tests import toy_device

if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGURG, lambda *_: None)  # so it is never cut: an iteration that is spans turns of others
toy_device.load()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).to("toy")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
toy_device.take_per_kernel(0.001)
begins_s, ends_s = [], []
model[0].register_forward_pre_hook(lambda *_: begins_s.append(time.monotonic()))
for step in range(20):
    inputs = torch.randn(8, 8).to("toy")
    ends_s += [toy_device.busy()[-1][1]] if step else []
    loss = model(inputs).square().mean()  # the iteration before ends here
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 0:
        print(loss.item())
ends_s.append(toy_device.busy()[-1][1])
with open(sys.argv[1], "w") as file:
    file.writelines(f"{{begin_s}} {{end_s}}\\n" for begin_s, end_s in zip(begins_s, ends_s, strict=True))
"""
"""Script that writes when each iteration began on the CPU, and when the device is done with it."""


@pytest.mark.parametrize("fused", [False, True])
def test_a_turn_begins_when_the_device_is_done_with_the_turn_before(tmp_path: Path, fused: bool) -> None:
    """If it failed, two jobs of a lane would have the device at once, and the joules of one would be the other's."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    alone = fork_script(script, str(tmp_path / "alone"), cwd=tmp_path, environment=os.environ)
    lane = ServedLane(tmp_path)
    try:
        lane.hand_over_always()
        with lane.together():
            launches = [lane.start(job, script, str(tmp_path / f"{job}-times"), fused=fused) for job in ("a", "b")]
        ends = [lane.ended(job) for job in ("a", "b")]
        assert (lane.pid(launches[0]) == lane.pid(launches[1])) is fused
    finally:
        lane.close()
    for ended in ends:
        assert (ended.exit_code, ended.outcome) == (0, "completed"), lane.printed(ended.job, "stderr").decode()
        assert alone == (0, lane.printed(ended.job))
        assert ended.usage["iterations"] == 20
    turns = sorted((begin_s, end_s, job) for job in ("a", "b") for begin_s, end_s in _times(tmp_path / f"{job}-times"))
    changes = [(before, after) for before, after in pairwise(turns) if before[2] != after[2]]
    assert len(changes) > 10
    for (_, end_s, _), (begin_s, _, _) in changes:
        assert begin_s >= end_s, "an iteration began while the device worked for the other job"


def _times(path: Path) -> Iterator[tuple[float, float]]:
    for line in path.read_text().splitlines():
        begin_s, end_s = map(float, line.split())
        yield begin_s, end_s
