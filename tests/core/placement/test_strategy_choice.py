"""One placement strategy a run, chosen from what the policy can do, and asked about nowhere else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ecoshare.base.device import Device
from ecoshare.core.events import SCHEMA, Config, RunOpened
from ecoshare.core.placement.strategies.elastic_placement import ElasticPlacement
from ecoshare.core.placement.strategies.packed_placement import PackedPlacement
from ecoshare.core.placement.strategies.preemptive_placement import PreemptivePlacement
from ecoshare.core.placement.strategies.queue_placement import QueuePlacement
from ecoshare.core.placement.strategies.round_placement import PreemptiveRounds, RoundsOfTurns
from ecoshare.core.placement.strategies.trial_placement import TrialPlacement
from ecoshare.core.placement.strategy import PlacementStrategy
from ecoshare.core.policies import own_names
from ecoshare.core.scheduler import Scheduler

CORE = Path(__file__).parents[3] / "ecoshare" / "core"
GIB = 1 << 30

PACKED = {"edp", "energy", "jct", "makespan"}
ELASTIC = {"equal", "fluid"}
ROUNDS = {"allox", "critical", "finish-time", "max-min", "pal", "shockwave"}
TRIAL = {"gandiva"}
ONLY_ORDER = {"fair", "fifo", "pack", "priority"}

PROTOCOLS = {"ElasticPolicy", "GangPlacementPolicy", "LevelPolicy", "PackingPolicy", "PlannedPolicy", "RoundPolicy"}
PROTOCOLS |= {"MovingPolicy", "TrialPackingPolicy"}


def opened(policy: str, preempt: bool) -> Scheduler:
    scheduler, lanes = Scheduler(), 1 if preempt else 2
    devices = (Device("g0", "here", 8 * GIB),)
    scheduler.handle(RunOpened(0.0, SCHEMA, Config(policy, lanes, lanes, preempt=preempt), devices))
    return scheduler


def expected(policy: str, preempt: bool) -> type[PlacementStrategy]:
    for names, strategy in ((PACKED, PackedPlacement), (ELASTIC, ElasticPlacement), (TRIAL, TrialPlacement)):
        if policy in names:
            return strategy
    if policy in ROUNDS:
        return PreemptiveRounds if preempt else RoundsOfTurns
    return PreemptivePlacement if preempt and policy not in ONLY_ORDER else QueuePlacement


@pytest.mark.parametrize("preempt", [False, True])
@pytest.mark.parametrize("policy", own_names())
def test_each_policy_has_the_strategy_of_what_it_can_do(policy: str, preempt: bool) -> None:
    """Fails if a policy loses a method of its protocol, or another strategy takes its place."""
    assert type(opened(policy, preempt).view.placement) is expected(policy, preempt)


@pytest.mark.parametrize("policy", own_names())
def test_groups_are_formed_by_the_policies_that_pack_alone(policy: str) -> None:
    """Fails if memory is counted for lanes that stay, though jobs move freely between them, or the other way round."""
    scheduler = opened(policy, preempt=False)
    assert (scheduler.view.placement.groups is not None) == (policy in PACKED)


def test_the_core_asks_in_one_place_what_a_policy_can_do() -> None:
    """Fails if a module other than `strategy_choice.py` tells policies apart by their protocols."""
    asked = set()
    for path in CORE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                used = {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}
                asked |= {path.name} if used & PROTOCOLS else set()
    assert asked == {"strategy_choice.py"}
