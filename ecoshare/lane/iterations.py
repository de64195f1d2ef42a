"""Finds the boundaries between the iterations of an unmodified script.

A script does not announce them. They are inferred from five events that can be seen from outside: the call of a root
module (`forward`), an optimizer's step, a backward pass that reaches parameters, the fetch of a batch from a
`DataLoader`, and the end of the script.

::

                    forward, grad             step, or backward pass
        BETWEEN ───────────────────► TRAINING ───────────────────────► STEPPED or DIFFERENTIATED
          ▲  │                          ▲                                │ │
          │  │ forward, no grad         │ forward, grad                  │ │ forward: boundary (train)
          │  ▼                          │                                │ ▼
          │ EVALUATING ─────────────────┘                                │ TRAINING or EVALUATING
          │  │  ▲ │                                                      │
          │  │  └─┘ same forward, no grad: boundary (eval)               │
          └──┴──────────────── fetch: boundary (train, eval) ◄───────────┘

A step alone ends nothing: a second optimizer may step next, or the step may run inside the backward pass. If an
optimizer steps twice without a forward between (functional models, compiled training steps), the step itself is the
boundary. It is none if the script has forwards, and no backward pass lies between the steps: one optimizer that steps
once for each group of its parameters (ZeRO) has one iteration. Inference without gradients right before a training
forward (a target network, a rollout) belongs to that training iteration.

A script without an optimizer changes its parameters by hand, which cannot be seen. There a backward pass that reaches
parameters marks the iteration, as a step does elsewhere. A script with an optimizer may accumulate the gradients of
several passes for one step. So passes mark nothing once the script has made an optimizer, and a mark that no boundary
has followed is taken back then. Passes mark nothing either once the script itself says where an iteration ends.

A replay of a CUDA graph is a step, too: the graph may hold the whole iteration, of which nothing else is seen. A replay
within a forward or a backward pass is a part of that. Without gradients, a graph that comes again ends an inference.

One pass of a loop may be several iterations: a GAN has a forward pass between the steps of its two optimizers, so each
step is one. Such a script is known by an optimizer that steps again after an iteration of others (`by_steps`).
"""

from __future__ import annotations

from enum import Enum


class IterationPhase(Enum):
    """Phase of an iteration: the events that have been seen since the last boundary."""

    BETWEEN = "between"
    TRAINING = "training"
    STEPPED = "stepped"
    DIFFERENTIATED = "differentiated"
    EVALUATING = "evaluating"


_MARKED = (IterationPhase.STEPPED, IterationPhase.DIFFERENTIATED)
"""Phases in which the training iteration is done: the next forward or fetch ends it."""


class Boundary(Enum):
    """Kind of the iteration that has just ended."""

    TRAIN = "train"
    EVAL = "eval"


class IterationTracker:
    """Turns the events of a script into boundaries.

    Attributes:
        phase: Phase of the present iteration.
        counts_backward: Whether backward passes mark iterations: the script has no optimizer, and does not say itself
            where an iteration ends.
        has_passed: Whether a backward pass has run since the last step. The hooks set it.
        by_steps: Whether optimizers step by turns, each in an iteration of its own, so that iterations are steps of
            optimizers and not passes of a loop.
    """

    def __init__(self) -> None:
        self.phase = IterationPhase.BETWEEN
        self.counts_backward = True
        self.by_steps = self.has_passed = False
        self._steppers: set[int] = set()
        self._last_steppers: set[int] = set()  # those of the iteration before
        self._earlier_steppers: set[int] = set()  # those after which others have stepped
        self._forward_seen = self._has_forwards = False
        self._evaluated: int | None = None
        self._replayed: set[int] = set()  # graphs of the present inference

    @property
    def watches_forward(self) -> bool:
        """Whether the next root forward matters. None does inside a training iteration, so hooks can be off."""
        return self.phase is not IterationPhase.TRAINING

    def forward(self, gradients: bool, root: int = 0) -> Boundary | None:
        """Note that a root module is about to be called. Return the kind of iteration that ended before it, or None.

        Args:
            gradients: Whether the call records gradients.
            root: Identity of the module. Several roots in a row without gradients (an encoder and a decoder) are one
                inference; the next one begins when the first of them comes again.
        """
        ended = None
        if self.phase in _MARKED:
            ended = self._trained()
        elif self.phase is IterationPhase.EVALUATING and not gradients and root == self._evaluated:
            ended = Boundary.EVAL
        if self.phase is not IterationPhase.EVALUATING or ended is not None:
            self._evaluated = root
        self._forward_seen = True
        self._has_forwards = self._has_forwards or gradients
        self.phase = IterationPhase.TRAINING if gradients else IterationPhase.EVALUATING
        return ended

    def step(self, optimizer: int, nested: bool = False) -> Boundary | None:
        """Note that an optimizer has stepped. Return the kind of iteration that ended with the step, or None.

        Args:
            optimizer: Identity of the optimizer.
            nested: Whether the step ran inside a backward pass or a compiled function, where no iteration can end.
        """
        self.counts_backward = False
        again = optimizer in self._steppers and not self._forward_seen
        is_another = self.has_passed or not self._has_forwards
        repeated = again and is_another and not nested and self.phase is IterationPhase.STEPPED
        self.has_passed = False
        ended = self._trained() if repeated else None
        if repeated or self._forward_seen:
            self._steppers.clear()
        self._steppers.add(optimizer)
        self._forward_seen = False
        self.phase = IterationPhase.STEPPED
        return ended

    def replay(self, graph: int, nested: bool = False) -> Boundary | None:
        """Note that a CUDA graph has been replayed. Return the kind of iteration that ended with it, or None.

        Args:
            graph: Identity of the graph.
            nested: Whether it was replayed inside a root call, a backward pass or a compiled function.
        """
        if nested:
            return None
        if self.phase is not IterationPhase.EVALUATING:
            ended = self.step(graph) if self.phase is not IterationPhase.TRAINING else None
            self.has_passed = True  # it holds one, as far as can be seen
            return ended
        again = graph in self._replayed
        self._replayed = {graph} if again else self._replayed | {graph}
        return Boundary.EVAL if again else None

    def differentiate(self) -> None:
        """Note that a backward pass has reached a parameter. It ends nothing: the script uses the gradients next."""
        if self.counts_backward and self.phase is IterationPhase.TRAINING:
            self.phase = IterationPhase.DIFFERENTIATED

    def make_optimizer(self) -> None:
        """Note that the script has made an optimizer. Only steps mark iterations from now on."""
        self.counts_backward = False
        self._last_steppers, self._earlier_steppers = set(), set()  # a new one may have the identity of an old one
        if self.phase is IterationPhase.DIFFERENTIATED:
            self.phase = IterationPhase.TRAINING

    def fetch(self) -> Boundary | None:
        """Note that a batch is about to be fetched from a `DataLoader`, or that the script is over.

        Returns:
            Kind of the iteration that ended before it, or None.
        """
        ended = Boundary.EVAL if self.phase is IterationPhase.EVALUATING else None
        if self.phase in _MARKED:
            ended = self._trained()
        if self.phase is not IterationPhase.TRAINING:
            self.phase = IterationPhase.BETWEEN
        return ended

    def declare(self) -> Boundary:
        """End an iteration, because the script itself says so."""
        self.counts_backward = False
        ended = self._trained() if self.phase is IterationPhase.STEPPED else Boundary.TRAIN
        self.phase = IterationPhase.BETWEEN
        return ended

    def _trained(self) -> Boundary:
        """Note which optimizers have stepped in the training iteration that has ended."""
        own, last = set(self._steppers), self._last_steppers
        if own and own.isdisjoint(last):
            self.by_steps = self.by_steps or not own.isdisjoint(self._earlier_steppers)
            self._earlier_steppers |= last
        self._last_steppers = own or last
        return Boundary.TRAIN
