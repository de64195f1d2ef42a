"""Boundaries of iterations, from calls to the tracker like those of the hooks."""

from __future__ import annotations

import pytest

from ecoshare.lane.iterations import Boundary, IterationPhase, IterationTracker

TRAIN, EVAL = Boundary.TRAIN, Boundary.EVAL


def follow(story: str) -> list[Boundary | None]:
    """Boundaries in a story: f forward, n forward without gradients, s/t step of one or another optimizer, d fetch.

    A digit after `n` names the root; capital S and T are steps inside a backward pass or a compiled function. The other
    signs are b, a backward pass that reaches a parameter, p, another one, o, the making of an optimizer, and g and h,
    replays of two graphs, with capital letters inside a call.
    """
    tracker = IterationTracker()
    seen: list[Boundary | None] = []
    steps = iter(story.replace(" ", ""))
    for sign in steps:
        match sign:
            case "f":
                seen.append(tracker.forward(gradients=True))
            case "n":
                seen.append(tracker.forward(gradients=False, root=int(next(steps))))
            case "s" | "t":
                seen.append(tracker.step(ord(sign)))
            case "S" | "T":
                seen.append(tracker.step(ord(sign), nested=True))
            case "d":
                seen.append(tracker.fetch())
            case "g" | "h":
                seen.append(tracker.replay(ord(sign)))
            case "G" | "H":
                seen.append(tracker.replay(ord(sign), nested=True))
            case "p":
                tracker.has_passed = True
            case "b":
                tracker.has_passed = True
                tracker.differentiate()
            case "o":
                tracker.make_optimizer()
    return seen


def counts(story: str) -> tuple[int, int]:
    seen = follow(story)
    return seen.count(TRAIN), seen.count(EVAL)


@pytest.mark.parametrize(
    ("story", "train", "evaluated", "what"),
    [
        ("dfs dfs dfs d", 3, 0, "a plain loop over a DataLoader"),
        ("fs fs fs d", 3, 0, "a loop without a DataLoader: the next forward ends the iteration"),
        ("fst fst fst d", 3, 0, "two optimizers in a row are one iteration"),
        ("dfs ft dfs ft d", 4, 0, "a GAN's two steps with a forward between are two"),
        ("dfdfdfdfs dfdfdfdfs d", 2, 0, "accumulation: fetches inside an open iteration end nothing"),
        ("s s s s d", 4, 0, "no forward is ever seen: each step of the same optimizer"),
        ("st st st d", 3, 0, "the same with two optimizers"),
        ("fSTST fSTST d", 2, 0, "an optimizer a parameter, stepping inside the backward pass"),
        ("dn1fs dn1fs d", 2, 0, "a target network belongs to the training iteration"),
        ("dfs dfs dn1 dn1 d", 2, 2, "a validation loop after training"),
        ("n1 n1 n1 d", 0, 3, "inference without a DataLoader"),
        ("n1n2 n1n2 n1n2 d", 0, 3, "an encoder and a decoder are one inference"),
        ("f d f d", 0, 0, "forwards with gradients and no step: open until a step comes"),
        ("fb fb fb d", 3, 0, "no optimizer: a backward pass marks the iteration"),
        ("dfb dfb d", 2, 0, "the same over a DataLoader"),
        ("fffb fffb d", 2, 0, "a rollout of several forwards and one backward pass"),
        ("fbb fbb d", 2, 0, "two losses of one forward are one iteration"),
        ("b fb b fb d", 2, 0, "a pass without a forward before it marks nothing"),
        ("fb fb n1n1n1 fb n1 d", 3, 3, "an evaluation; the last of the first belongs to the next training iteration"),
        ("n1fb n1fb d", 2, 0, "a target network"),
        ("o fbs fbs d", 2, 0, "with an optimizer, steps alone count"),
        ("o fbfbfbs fbfbfbs d", 2, 0, "accumulation, also before the very first step"),
        ("o fb fb fb d", 0, 0, "an optimizer that never steps"),
        ("fb o fbfbs fbs d", 2, 0, "a pass right before the optimizer is made is no iteration"),
        ("fb fb o fbfbs d", 2, 0, "an iteration that had ended before the optimizer was made stays counted"),
        ("fbs fbfbs d", 2, 0, "an optimizer whose making was not seen counts from its first step"),
        ("d d d", 0, 0, "nothing but fetches"),
        ("ofbsss fbsss d", 2, 0, "ZeRO: one optimizer steps for each group of its parameters"),
        ("ofbststst fbststst d", 2, 0, "the same with two optimizers"),
        ("ofbs ps ps ps d", 4, 0, "a functional model after a module has had its pass"),
        ("ofbs fbs g g g d", 4, 0, "a graph of the whole iteration, after one to warm up; the capture does no work"),
        ("ofbs fb gs gs gs d", 4, 0, "a graph of both passes, and a step of its own"),
        ("g h g h g h d", 3, 0, "a graph for each half of the iteration"),
        ("dg dg dg d", 3, 0, "the same over a DataLoader"),
        ("ofGHs fGHs d", 2, 0, "graphs within the calls of a module are a part of them"),
        ("ofghs fghs d", 2, 0, "the same where the call is not seen to its end"),
        ("n1 g g g d", 0, 3, "inference by a graph: its capture and three replays are three"),
        ("n1 gh gh d", 0, 2, "inference by two graphs"),
        ("n1 GG n1 GG d", 0, 2, "graphs within an inference"),
    ],
)
def test_iterations_are_counted(story: str, train: int, evaluated: int, what: str) -> None:
    assert counts(story) == (train, evaluated), what


def tracked(story: str) -> IterationTracker:
    """Tracker after a story of `f`, `s`, `t`, `o` and `d`, as in `follow`; `!` declares the end of an iteration."""
    tracker = IterationTracker()
    calls = {
        "f": lambda: tracker.forward(gradients=True),
        "s": lambda: tracker.step(1),
        "t": lambda: tracker.step(2),
        "o": tracker.make_optimizer,
        "d": tracker.fetch,
        "!": tracker.declare,
    }
    for sign in story.replace(" ", ""):
        calls[sign]()
    return tracker


@pytest.mark.parametrize(
    ("story", "by_steps", "what"),
    [
        ("oo dfs ft dfs ft d", True, "a GAN"),
        ("oo fs fs fs ft fs fs fs ft f", True, "a GAN with three steps of its critic for one of its generator"),
        ("oo dfs ft dfs", False, "the first pass may be two phases of a script, until an optimizer steps again"),
        ("oo dfst dfst dfst d", False, "two optimizers in a row are one pass of the loop"),
        ("oo dfst dfs dfst dfs d", False, "a second optimizer with every second step is part of a whole pass"),
        ("o fs fs fs o ft ft ft f", False, "two models, one after the other"),
        ("o fs fs o ft ft o fs fs f", False, "folds, with a new optimizer at the identity of an old one"),
        (
            "oo dfsft! dfsft! dfsft! d",
            True,
            "the first step of a GAN is an iteration also if the script ends each pass itself",
        ),
        ("oo fst! fst! fst! d", False, "two optimizers in a row, in a script that says itself where a pass ends"),
    ],
)
def test_iterations_that_are_steps_of_optimizers_by_turns_are_known(story: str, by_steps: bool, what: str) -> None:
    assert tracked(story).by_steps is by_steps, what


def test_a_second_optimizer_is_not_cut_off() -> None:
    assert follow("fs")[-1] is None
    assert follow("fst") == [None, None, None]


def test_forwards_inside_an_open_iteration_need_no_watching() -> None:
    tracker = IterationTracker()
    assert tracker.watches_forward
    tracker.forward(gradients=True)
    assert tracker.phase is IterationPhase.TRAINING and not tracker.watches_forward
    tracker.step(1)
    assert tracker.watches_forward


def test_a_mark_by_a_backward_pass_is_watched_like_one_by_a_step() -> None:
    """If it failed, the forward that ends the iteration would not be seen."""
    tracker = IterationTracker()
    tracker.forward(gradients=True)
    tracker.differentiate()
    assert tracker.watches_forward
    tracker.make_optimizer()
    assert not tracker.watches_forward


def test_passes_count_no_more_where_the_script_says_it_itself() -> None:
    """If it failed, a script that declares an iteration after several passes would have some twice."""
    tracker = IterationTracker()
    tracker.forward(gradients=True)
    tracker.differentiate()
    assert tracker.declare() is TRAIN
    for _ in range(3):
        assert tracker.forward(gradients=True) is None
        tracker.differentiate()
    assert tracker.declare() is TRAIN
    assert tracker.fetch() is None


def test_a_script_may_say_it_itself() -> None:
    tracker = IterationTracker()
    tracker.forward(gradients=True)
    assert tracker.declare() is TRAIN
    assert tracker.phase is IterationPhase.BETWEEN
