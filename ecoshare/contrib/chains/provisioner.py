"""Decision when to submit the successor of an allocation: pure, for a live chain and a simulated one alike.

::

    predecessor  ├───────────────────────────────────────────────┤ limit
    looks        ^          ^       ^     ^   ^  ^ ^
                                                   └ remaining <= predicted wait: submit
    successor                                      ├╌╌╌ waits ╌╌╌╌┼──────────────────────

Each look asks for the state of the queue, which costs the scheduler of the cluster something. So looks are rare while
much time is left beyond the predicted wait, and become frequent as the two come close.
"""

from __future__ import annotations

from dataclasses import dataclass

from ecoshare.contrib.chains.queue_sight import QueueSight
from ecoshare.contrib.chains.wait_predictor import WaitPredictor


@dataclass(frozen=True, slots=True)
class Decision:
    """Answer of a provisioner.

    Attributes:
        submit: Whether to submit the successor now.
        look_again_s: Time (s) until the next look; 0 if the successor is to be submitted.
        remaining_s: Time (s) that the predecessor still had.
        wait_s: Predicted wait (s) of the successor.
    """

    submit: bool
    look_again_s: float
    remaining_s: float
    wait_s: float


@dataclass(frozen=True, slots=True)
class Provisioner:
    """Rule that submits once the remaining time is at most the predicted wait, to the second.

    If the prediction stays as it is, the next look is at the latest at the moment to submit.

    Attributes:
        predictor: Predictor of the wait.
        margin_s: Time (s) that is added to each prediction.
        least_s: Shortest time (s) between two looks.
        most_s: Longest time (s) between two looks.
        pace: Part of the time beyond the predicted wait after which to look again.
        ahead: Largest number of successors that wait at once. More than one helps where waits are longer than limits.
    """

    predictor: WaitPredictor
    margin_s: float = 0.0
    least_s: float = 300.0
    most_s: float = 7200.0
    pace: float = 0.25
    ahead: int = 1

    def decide(self, sight: QueueSight, remaining_s: float, gpus: int, limit_s: float) -> Decision:
        """Decide whether to submit the successor now.

        Args:
            sight: The queue now, without this successor.
            remaining_s: Time (s) until the predecessor ends. If it waits, too, its end is the predicted one.
            gpus: GPUs of the successor.
            limit_s: Time limit (s) of the successor.
        """
        wait_s = self.predictor.wait_s(sight, gpus, limit_s)
        beyond_s = remaining_s - wait_s - self.margin_s
        if beyond_s < 1.0:
            return Decision(True, 0.0, remaining_s, wait_s)
        look_s = min(max(beyond_s * self.pace, self.least_s), self.most_s, beyond_s)
        return Decision(False, look_s, remaining_s, wait_s)
