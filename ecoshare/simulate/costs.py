"""What starting, stopping and switching cost: measured by the live runtime, not zero."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds that are lost, on the wall clock.

    The defaults are those of the live runtime on a CPU (`scripts/bench_start.py`, `scripts/bench_turns.py`, figures in
    docs/measurements). On a GPU a context comes to the start, some seconds, and what a job needs to save and load its
    state to the stop and the restart: nobody but its owner knows that, so it is a parameter.

    Attributes:
        start_s: From a decision to start a job until it may have its turn: a warm fork.
        stop_s: From the word to give way until the devices are free.
        restart_s: More than `start_s`, for a job that goes on from where it was stopped.
        handover_s: From the end of a turn to the beginning of the next.
        rest_s: For which an idle device is watched before the first job is measured alone there, and `window_s`: for
            which each is.
        trial_s: Of a trial of a setting, or of a packing at the default.
        ask_s: Until an adviser has answered.
        apply_s: Until a setting is in force.
    """

    start_s: float = 0.035
    stop_s: float = 0.0
    restart_s: float = 0.0
    handover_s: float = 40e-6
    rest_s: float = 3.0
    window_s: float = 4.0
    trial_s: float = 4.5
    ask_s: float = 0.3
    apply_s: float = 0.05

    def changed(self, given: dict[str, float]) -> Costs:
        """With other values, by name."""
        return replace(self, **given)

    def as_dict(self) -> dict[str, float]:
        """Plain data for JSON."""
        return asdict(self)


NO_COSTS = Costs(0.0, 0.0, 0.0, 0.0, ask_s=0.0, apply_s=0.0)
"""As in simulators that leave them out."""
