"""The hooks in this process: boundaries of small training loops that do not announce them.

Each loop runs with a recorder in place of the lane. The recorder also sees whether a boundary is at a place where
the job may yield: outside of every backward pass.
"""

from __future__ import annotations

import copy
import gc
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import smooth_l1_loss
from torch.nn.modules import module as module_hooks
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, TensorDataset

from ecoshare.lane import hooks
from ecoshare.lane.hooks import Hooks
from ecoshare.lane.iterations import Boundary


class Recorder:
    """Receiver of boundaries."""

    absence_cost_s = 0.0
    cut_hook = None
    is_waited_for = False

    def __init__(self) -> None:
        self.train = self.evaluated = self.left = 0
        self.inside = False

    def boundary(self, kind: Boundary) -> None:
        self.inside = self.inside or torch._C._current_graph_task_id() != -1
        self.count(kind)

    def count(self, kind: Boundary) -> None:
        if kind is Boundary.TRAIN:
            self.train += 1
        else:
            self.evaluated += 1

    def leave(self) -> None:
        self.left += 1

    def take(self) -> None: ...


@pytest.fixture
def counted() -> Iterator[Callable[[Callable[[], object]], tuple[int, int]]]:
    """Run a function as a job's script, and return its training and eval iterations."""

    def run(script: Callable[[], object]) -> tuple[int, int]:
        recorder = Recorder()
        watching = Hooks(recorder, accelerator=False)
        watching.install()
        try:
            script()
            watching.finish()
        finally:
            watching.switch_off()
        assert not recorder.inside, "a boundary inside a backward pass"
        assert not module_hooks._global_forward_pre_hooks, "a hook is left"
        return recorder.train, recorder.evaluated

    yield run
    hooks._here = None


def test_nothing_that_is_held_marks_an_iteration(counted: Callable[[Callable[[], object]], tuple[int, int]]) -> None:
    """Else a service that calls its model twice for an answer would have two iterations for it."""
    model = nn.Linear(4, 4)

    def script() -> None:
        assert hooks._here is not None
        with torch.no_grad():
            model(torch.ones(1, 4))  # the iteration before, which ends here
            with hooks._here.holding():
                for _ in range(5):
                    model(torch.ones(1, 4))
            for _ in range(3):
                model(torch.ones(1, 4))

    assert counted(script) == (0, 1 + 3)


Counted = Callable[[Callable[[], object]], tuple[int, int]]


def descend(*modules: nn.Module) -> None:
    """Change parameters by their gradients, by hand."""
    for module in modules:
        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter.data.add_(parameter.grad, alpha=-0.1)
        module.zero_grad()


def loss_of(module: Any, x: Tensor | None = None) -> Any:
    output: Tensor = module(torch.ones(4, 3) if x is None else x)
    return smooth_l1_loss(output, torch.zeros_like(output))


def net() -> Any:
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))


@pytest.mark.skipif(torch.version.cuda is not None, reason="needs an accelerator: this torch makes real graphs")
def test_a_loop_of_replays_has_an_iteration_for_each(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else such a job kept its turn to its end. The graph itself needs a GPU."""
    replayed: list[object] = []
    monkeypatch.setattr(torch.cuda.CUDAGraph.__mro__[1], "replay", lambda graph: replayed.append(graph), raising=False)
    graph: Any = object.__new__(torch.cuda.CUDAGraph)
    graph._tracker = None  # a field of newer versions of torch

    def script() -> None:
        for _ in range(5):
            graph.replay()

    assert counted(script) == (5, 0) and replayed == [graph] * 5


def test_descent_by_hand_has_an_iteration_for_each_backward_pass(counted: Counted) -> None:
    model = net()

    def script() -> None:
        for _ in range(7):
            loss_of(model).backward()
            descend(model)

    assert counted(script) == (7, 0), "the last one ends with the script"


def test_evaluation_between_epochs_is_counted_apart(counted: Counted) -> None:
    model = net()
    loader = DataLoader(TensorDataset(torch.ones(6, 3)), batch_size=2)

    def script() -> None:
        for _ in range(2):
            for (x,) in loader:
                loss_of(model, x).backward()
                descend(model)
            with torch.no_grad():
                for (x,) in loader:
                    loss_of(model, x)

    assert counted(script) == (6, 6)


@pytest.mark.parametrize("copied", [False, True])
def test_accumulation_counts_steps_alone_from_the_first_on(counted: Counted, copied: bool) -> None:
    """If it failed, the passes before the first step of an optimizer would be iterations of their own."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def script() -> None:
        mine = copy.deepcopy(optimizer) if copied else torch.optim.SGD(model.parameters(), lr=0.1)
        for micro_batch in range(1, 13):
            loss_of(model).backward()
            if micro_batch % 4 == 0:
                mine.step()
                mine.zero_grad()

    assert counted(script) == (3, 0)


def test_a_pass_right_before_the_optimizer_is_made_is_no_iteration(counted: Counted) -> None:
    model = net()

    def script() -> None:
        loss_of(model).backward()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with torch.no_grad():
            for _ in range(3):
                loss_of(model)
        for _ in range(3):
            loss_of(model).backward()
            optimizer.step()

    assert counted(script) == (3, 0), "the iteration that the pass had begun stays open until the first step"


def test_two_models_that_train_in_turn_have_an_iteration_for_each_pass(counted: Counted) -> None:
    generator, discriminator = net(), net()

    def script() -> None:
        for _ in range(5):
            fake = generator(torch.ones(4, 3))
            loss_of(discriminator, fake.detach()).backward()
            descend(discriminator)
            loss_of(discriminator, fake).backward()
            descend(generator)
            discriminator.zero_grad()

    assert counted(script) == (10, 0)


def test_a_root_that_is_frozen_does_not_hide_the_one_that_trains(counted: Counted) -> None:
    encoder, decoder = net().requires_grad_(False), net()

    def script() -> None:
        for _ in range(4):
            loss_of(decoder, encoder(torch.ones(4, 3))).backward()
            descend(decoder)

    assert counted(script) == (4, 0)


def test_passes_that_reach_no_parameter_mark_nothing(counted: Counted) -> None:
    """If it failed, each probe of a model's inputs would be an iteration of training."""
    model, frozen = net(), net().requires_grad_(False)

    def script() -> None:
        x = torch.ones(4, 3, requires_grad=True)
        for _ in range(3):
            loss_of(frozen, x).backward()
            loss_of(model, x).backward(inputs=[x])
            torch.autograd.grad(loss_of(model, x), x)

    assert counted(script) == (0, 0)


def test_gradients_from_grad_count_too(counted: Counted) -> None:
    model = net()

    def script() -> None:
        for _ in range(4):
            gradients = torch.autograd.grad(loss_of(model), list(model.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                    parameter -= 0.1 * gradient

    assert counted(script) == (4, 0)


def test_several_passes_over_one_forward_are_one_iteration(counted: Counted) -> None:
    model = net()

    def script() -> None:
        for _ in range(4):
            loss = loss_of(model)
            loss.backward(retain_graph=True)
            gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
            torch.autograd.backward([each.square().sum() for each in gradients])
            descend(model)

    assert counted(script) == (4, 0)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_model_runs_again_inside_the_pass(counted: Counted, reentrant: bool) -> None:
    """If it failed, the forward that checkpointing repeats would be the next iteration, or the pass inside the pass."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = net()

        def forward(self, x: Tensor) -> Any:
            if torch._C._current_graph_task_id() != -1:
                hooks_inside.append(len(module_hooks._global_forward_pre_hooks))
            return self.layers(x)

    blocks, head = nn.Sequential(Block(), Block()), net().requires_grad_(False)
    hooks_inside: list[int] = []

    def script() -> None:
        for _ in range(4):
            x = torch.ones(4, 3, requires_grad=True)
            for block in blocks:
                x = checkpoint(block, x, use_reentrant=reentrant)
            loss_of(head, x).backward()
            descend(blocks)

    assert counted(script)[0] == 4
    assert hooks_inside == [0] * 8, "each block runs again, and no hook is there"


def test_parameters_may_be_shared_and_replaced(counted: Counted) -> None:
    model = net()
    model[2].weight = nn.Parameter(model[0].weight.detach().t().clone())

    def script() -> None:
        for _ in range(4):
            loss_of(model).backward()
            for layer in (model[0], model[2]):
                layer.weight = nn.Parameter(layer.weight.detach() - 0.1 * layer.weight.grad)
            model.zero_grad()

    assert counted(script) == (4, 0)


def test_a_pass_that_fails_marks_nothing_and_its_error_is_the_scripts(counted: Counted) -> None:
    model = net()

    def script() -> None:
        loss = loss_of(model)
        for _ in range(3):
            with pytest.raises(RuntimeError, match="implicitly created only for scalar"):
                model(torch.ones(4, 3)).backward()
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()

    assert counted(script) == (1, 0)


def test_iterations_that_the_script_declares_are_not_counted_twice(counted: Counted) -> None:
    model = net()
    recorder = Recorder()
    watching = Hooks(recorder, accelerator=False)
    watching.install()
    for _ in range(5):
        loss_of(model).backward()
        descend(model)
        watching.declare()
    watching.finish()
    assert recorder.train == 5


def test_results_are_the_same_and_nothing_is_kept(counted: Counted) -> None:
    """If it failed, the hooks would change what a script computes, or hold its graphs and modules."""

    def train() -> list[Any]:
        torch.manual_seed(1)
        model = net()
        losses = []
        for _ in range(5):
            loss = loss_of(model, torch.randn(4, 3))
            loss.backward()
            assert all(parameter._backward_hooks is None for parameter in model.parameters())
            descend(model)
            losses.append(loss.item())
        kept.extend(weakref.ref(each) for each in (model, loss, model[0].weight))
        return losses

    kept: list[Any] = []
    found: list[Any] = []
    alone = train()
    counted(lambda: found.extend(train()))
    gc.collect()
    assert found == alone
    assert [each() for each in kept] == [None] * 6


@pytest.mark.nightly
def test_gradients_that_are_only_traced_mark_nothing(counted: Counted) -> None:
    """If it failed, compiling an encoder would end an iteration before its decoder runs."""
    import torch._dynamo  # the hooks wrap it

    encoder, decoder = net(), net()

    def script() -> None:
        compiled: Any = torch.compile(
            encoder, backend="aot_eager"
        )  # traces gradients of parameters when it is first called
        for _ in range(3):
            loss_of(decoder, compiled(torch.ones(4, 3))).backward()
            descend(encoder, decoder)

    assert counted(script) == (3, 0)


@pytest.mark.nightly
@pytest.mark.parametrize("whole", [False, True], ids=["model", "step"])
def test_dynamo_compiles_the_frames_of_the_script_alone(counted: Counted, whole: bool) -> None:
    """If it failed, the hooks would be traced into the script's graphs, or compiled beside them."""
    import torch._dynamo as dynamo
    from torch._dynamo.utils import counters

    def script() -> None:
        dynamo.reset()
        counters.clear()
        model = net()
        called = model

        def step() -> None:
            for _ in range(2 if whole else 1):
                loss_of(called).backward()

        if whole:
            step = torch.compile(step, backend="eager")
        else:
            called = torch.compile(model, backend="eager")
        for _ in range(4):
            step()
            descend(model)
        frames.append({name: dict(found) for name, found in counters.items()})

    frames: list[Any] = []
    script()
    assert counted(script) == (4, 0)
    assert frames[0] == frames[1]


@pytest.mark.parametrize(
    ("passes_between", "iterations"), [(True, 8), (False, 4)], ids=["a GAN's two steps", "two steps in a row"]
)
def test_optimizers_that_step_by_turns_are_known(counted: Counted, passes_between: bool, iterations: int) -> None:
    """If it failed, tables would call half of a GAN's pass an iteration, or a whole pass a step."""
    generator, critic = net(), net()
    first, second = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (critic, generator))
    by_steps = None

    def script() -> None:
        nonlocal by_steps
        watching = hooks._here
        assert watching is not None
        for _ in range(4):
            loss = loss_of(critic, generator(torch.ones(4, 3)))
            loss.backward()
            first.step()
            if passes_between:
                loss_of(critic, generator(torch.ones(4, 3))).backward()
            second.step()
        by_steps = watching.by_steps

    assert counted(script) == (iterations, 0)
    assert by_steps is passes_between


class SlowData(Dataset[Tensor]):
    """Samples that take longer than two hand-overs."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Tensor:
        if index >= len(self):
            raise IndexError(index)
        time.sleep(0.005)
        return torch.ones(4)


@pytest.mark.parametrize("waited_for", [False, True])
def test_the_device_is_left_for_a_fetch_only_if_another_job_waits(waited_for: bool) -> None:
    """Else the device is drained before each fetch: 20 ms of it beside 15 ms of fetch would take 35 ms, alone, too."""
    recorder = Recorder()
    recorder.is_waited_for = waited_for
    watching = Hooks(recorder, accelerator=True)
    watching.install()
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        for batch in DataLoader(SlowData()):
            model(batch).sum().backward()
            optimizer.step()
    finally:
        watching.switch_off()
        hooks._here = None
    assert recorder.left == (6 if waited_for else 0), "the first is not known; the end of the data is the last"
