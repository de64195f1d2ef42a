"""Choice of the placement strategy, made once when a run is opened, from what its policy can do.

No other module of the core asks a policy what it can do.
"""

from __future__ import annotations

from collections.abc import Callable

from ecoshare.core.events import RunOpened
from ecoshare.core.memory import HostMemory
from ecoshare.core.placement.device_moves import DeviceMoves
from ecoshare.core.placement.displacement import Displacement
from ecoshare.core.placement.lane_index import LaneIndex
from ecoshare.core.placement.limits import PowerRoom
from ecoshare.core.placement.memory_fit import MemoryFit
from ecoshare.core.placement.strategies.elastic_placement import ElasticPlacement
from ecoshare.core.placement.strategies.packed_placement import PackedPlacement
from ecoshare.core.placement.strategies.preemptive_placement import PreemptivePlacement
from ecoshare.core.placement.strategies.queue_placement import QueuePlacement
from ecoshare.core.placement.strategies.round_placement import PreemptiveRounds, RoundsOfTurns
from ecoshare.core.placement.strategies.trial_placement import TrialPlacement
from ecoshare.core.placement.strategy import PlacementParts, PlacementStrategy
from ecoshare.core.policies import make
from ecoshare.core.policies.base import (
    ElasticPolicy,
    FillingPolicy,
    GangPlacementPolicy,
    LevelPolicy,
    MovingPolicy,
    PackingPolicy,
    PlannedPolicy,
    RoundPolicy,
    TrialPackingPolicy,
)
from ecoshare.core.policy_timers import PolicyTimers
from ecoshare.core.run_state import RunState
from ecoshare.core.settings.profiling_windows import Profiling


def placement_strategy(
    opened: RunOpened,
    state: RunState,
    profiling: Profiling,
    next_id: Callable[[], int],
    is_held: Callable[[str], bool],
    trials_coming: Callable[[], bool],
) -> PlacementStrategy:
    """Strategy of a run, with its policy, its index of the lanes and its memory fit.

    If a policy could have several strategies, the first of these is chosen: packed, elastic, rounds, preemptive, trial
    packing, queue.

    Args:
        opened: Opening of the run.
        state: Jobs and unanswered commands, which the scheduler keeps up to date.
        profiling: Profiling windows.
        next_id: Function that returns the id of the next command.
        is_held: Whether a window or a measurement is under way on a device. No job may come, go or move meanwhile.
        trials_coming: Whether a sampler was asked for a trial and has not answered.
    """
    config, policy = opened.config, make(opened.config)
    gangs = policy if isinstance(policy, GangPlacementPolicy) else None
    levels = policy if isinstance(policy, LevelPolicy) else None
    if gangs is not None:
        gangs.meet(opened.devices)
    lane_index = LaneIndex(policy.lane, gangs)
    power = PowerRoom(config.power_budget_w, lane_index.devices) if config.budget_by_placement else None
    fit = MemoryFit(
        lane_index, profiling, isinstance(policy, PackingPolicy), config.enforces_memory, power, config.grows
    )
    host, timers = HostMemory(config.host_bytes), PolicyTimers(levels, next_id)
    displacement = None
    if config.host_bytes or config.displaces:
        displacement = Displacement(policy, lane_index, fit, host, timers, is_held, config.displaces)
    moves = None
    if config.displaces and len(opened.devices) > 1:
        moves = DeviceMoves(policy, state, lane_index, fit, is_held, trials_coming)
    parts = PlacementParts(policy, levels, state, lane_index, fit, profiling, timers, host, displacement, moves)
    preempts = config.preempt and policy.preempts
    if isinstance(policy, PackingPolicy):
        on_processors = any(device.threads for device in opened.devices)
        return PackedPlacement(parts, policy, opened, is_held, next_id, on_processors)
    if isinstance(policy, ElasticPolicy):
        return ElasticPlacement(parts, policy, trials_coming, widens=not config.power_budget_w)
    if isinstance(policy, RoundPolicy):
        planned = policy if isinstance(policy, PlannedPolicy) else None
        if preempts:
            moving = policy if isinstance(policy, MovingPolicy) else None
            filling = policy if isinstance(policy, FillingPolicy) else None
            return PreemptiveRounds(parts, policy, planned, opened.at_s, next_id, moving, filling)
        return RoundsOfTurns(parts, policy, planned, opened.at_s, next_id)
    if preempts:
        return PreemptivePlacement(parts)
    if isinstance(policy, TrialPackingPolicy):
        places = policy.places or config.places_per_lane
        return TrialPlacement(parts, policy, places > 1 or config.lanes_per_device > 2)
    return QueuePlacement(parts, is_held, next_id)
