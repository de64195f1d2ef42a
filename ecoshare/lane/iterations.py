"""Where one iteration of an unmodified script ends and the next begins.

A script does not say so; it is inferred from four things that can be seen from outside: the call of a root module
(`forward`), an optimizer's step, the fetch of a batch from a `DataLoader`, and the end of the script.

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

A step alone ends nothing: a second optimizer may step next, or the step may run inside the backward pass. Where an
optimizer steps twice with no forward between (functional models, compiled training steps), the step itself is the
boundary. Inference without gradients right before a training forward (a target network, a rollout) belongs to that
training iteration.
"""

from __future__ import annotations

from enum import Enum


class IterationPhase(Enum):
    """What has been seen since the last boundary."""

    BETWEEN = "between"
    TRAINING = "training"
    STEPPED = "stepped"
    EVALUATING = "evaluating"


class Boundary(Enum):
    """The kind of the iteration that has just ended."""

    TRAIN = "train"
    EVAL = "eval"


class IterationTracker:
    """Turns what is seen of a script into boundaries.

    Attributes:
        phase: What has been seen since the last boundary.
    """

    def __init__(self) -> None:
        self.phase = IterationPhase.BETWEEN
        self._steppers: set[int] = set()
        self._forward_seen = False
        self._evaluated: int | None = None

    @property
    def watches_forward(self) -> bool:
        """Whether the next root forward matters. Inside a training iteration none does, so hooks can be off."""
        return self.phase is not IterationPhase.TRAINING

    def forward(self, gradients: bool, root: int = 0) -> Boundary | None:
        """A root module is about to be called.

        Args:
            gradients: Whether the call records them.
            root: Its identity. Several roots in a row without gradients (an encoder and a decoder) are one inference;
                the first of them coming again begins the next.
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
        """An optimizer has stepped.

        Args:
            optimizer: Its identity.
            nested: The step ran inside a backward pass or a compiled function, where nothing can end.
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
        """A batch is about to be fetched from a `DataLoader`, or the script is over."""
        ended = {IterationPhase.STEPPED: Boundary.TRAIN, IterationPhase.EVALUATING: Boundary.EVAL}.get(self.phase)
        if self.phase is not IterationPhase.TRAINING:
            self.phase = IterationPhase.BETWEEN
        return ended

    def declare(self) -> Boundary:
        """The script itself says that an iteration is over."""
        self.phase = IterationPhase.BETWEEN
        return Boundary.TRAIN
