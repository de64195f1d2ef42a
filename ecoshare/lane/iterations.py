"""Finds the boundaries between the iterations of an unmodified script.

A script does not announce them. They are inferred from four events that can be seen from outside: the call of a root
module (`forward`), an optimizer's step, the fetch of a batch from a `DataLoader`, and the end of the script.

::

                    forward, grad                    step
        BETWEEN ───────────────────► TRAINING ───────────────► STEPPED
          ▲  │                          ▲                        │ │
          │  │ forward, no grad         │ forward, grad          │ │ forward: boundary (train)
          │  ▼                          │                        │ ▼
          │ EVALUATING ─────────────────┘                        │ TRAINING or EVALUATING
          │  │  ▲ │
          │  │  └─┘ same forward, no grad: boundary (eval)
          └──┴──────────────── fetch: boundary (train, eval) ◄───┘

A step alone ends nothing: a second optimizer may step next, or the step may run inside the backward pass. If an
optimizer steps twice without a forward between (functional models, compiled training steps), the step itself is the
boundary. Inference without gradients right before a training forward (a target network, a rollout) belongs to that
training iteration.
"""

from __future__ import annotations

from enum import Enum


class IterationPhase(Enum):
    """Phase of an iteration: the events that have been seen since the last boundary."""

    BETWEEN = "between"
    TRAINING = "training"
    STEPPED = "stepped"
    EVALUATING = "evaluating"


class Boundary(Enum):
    """Kind of the iteration that has just ended."""

    TRAIN = "train"
    EVAL = "eval"


class IterationTracker:
    """Turns the events of a script into boundaries.

    Attributes:
        phase: Phase of the present iteration.
    """

    def __init__(self) -> None:
        self.phase = IterationPhase.BETWEEN
        self._steppers: set[int] = set()
        self._forward_seen = False
        self._evaluated: int | None = None

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
        if self.phase is IterationPhase.STEPPED:
            ended = Boundary.TRAIN
        elif self.phase is IterationPhase.EVALUATING and not gradients and root == self._evaluated:
            ended = Boundary.EVAL
        if self.phase is not IterationPhase.EVALUATING or ended is not None:
            self._evaluated = root
        self._forward_seen = True
        self.phase = IterationPhase.TRAINING if gradients else IterationPhase.EVALUATING
        return ended

    def step(self, optimizer: int, nested: bool = False) -> Boundary | None:
        """Note that an optimizer has stepped. Return the kind of iteration that ended with the step, or None.

        Args:
            optimizer: Identity of the optimizer.
            nested: Whether the step ran inside a backward pass or a compiled function, where no iteration can end.
        """
        again = optimizer in self._steppers and not self._forward_seen
        repeated = again and not nested and self.phase is IterationPhase.STEPPED
        if repeated or self._forward_seen:
            self._steppers.clear()
        self._steppers.add(optimizer)
        self._forward_seen = False
        self.phase = IterationPhase.STEPPED
        return Boundary.TRAIN if repeated else None

    def fetch(self) -> Boundary | None:
        """Note that a batch is about to be fetched from a `DataLoader`, or that the script is over.

        Returns:
            Kind of the iteration that ended before it, or None.
        """
        ended = {IterationPhase.STEPPED: Boundary.TRAIN, IterationPhase.EVALUATING: Boundary.EVAL}.get(self.phase)
        if self.phase is not IterationPhase.TRAINING:
            self.phase = IterationPhase.BETWEEN
        return ended

    def declare(self) -> Boundary:
        """End an iteration, because the script itself says so."""
        self.phase = IterationPhase.BETWEEN
        return Boundary.TRAIN
