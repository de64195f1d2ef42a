"""Costs of starts, stops, hand-overs and measurements, with values measured in the live runtime."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True, slots=True)
class Costs:
    """Overheads in seconds of wall-clock time.

    The defaults are those of the live runtime on a CPU (`scripts/bench_start.py`, `scripts/bench_turns.py`, figures in
    docs/measurements). On a GPU, the context adds some seconds to the start. Saving and loading the job's state adds
    to the stop and the restart. Only the user knows these times, so they are parameters.

    Attributes:
        start_s: Time from the decision to start a job until it may have its turn, with a warm fork.
        stop_s: Time from the command to stop a job until its devices are free.
        restart_s: Time added to `start_s` when a job resumes after it was stopped.
        handover_s: Time from the end of a turn to the beginning of the next.
        transfer_s_per_gib: Time (s) in which a GiB of a parked job's memory moves to the host or back.
        empty_s: Time added to `handover_s` if the job that hands over empties the cache of its allocator.
        rest_s: Time for which an idle device is measured, once, before the first profiling window there.
        window_s: Length of a profiling window, in which one job is measured alone.
        trial_s: Length of a measurement of a setting, or of a packing at the default setting.
        ask_s: Time until an adviser answers.
        apply_s: Time until a new setting is in force.
    """

    start_s: float = 0.035
    stop_s: float = 0.0
    restart_s: float = 0.0
    handover_s: float = 40e-6
    empty_s: float = 0.004
    transfer_s_per_gib: float = 0.25
    rest_s: float = 3.0
    window_s: float = 4.0
    trial_s: float = 4.5
    ask_s: float = 0.3
    apply_s: float = 0.05

    def changed(self, given: dict[str, float]) -> Costs:
        """Copy with the `given` values, keyed by field name."""
        return replace(self, **given)

    def as_dict(self) -> dict[str, float]:
        """Plain data for JSON."""
        return asdict(self)


NO_COSTS = Costs(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, ask_s=0.0, apply_s=0.0)
"""No overhead for starts, stops, hand-overs, transfers, advice and settings, as in simulators that leave it out."""
