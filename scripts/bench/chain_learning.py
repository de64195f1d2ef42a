"""Learned ways to submit the successors of a chain: random forest, policy gradient and deep Q-network.

They are those of Mirage (Ding et al., SC 2023) beside gradient boosting. The forest predicts waits from the log, as
gradient boosting does. The two policies look at the queue, the time left and the boosted wait, and say at each look
whether to submit. They begin with the decisions of a rule with a margin, and learn on chains in a replay of weeks
before the held-back ones. A chain gives

    reward = -(WORTH * interruption + overlap) / work,

less that of a rule with a margin on the same chain. Nothing of the package uses this.

Sources: Breiman, "Random Forests", 2001; Williams, "Simple statistical gradient-following algorithms for connectionist
reinforcement learning", 1992; Mnih et al., "Human-level control through deep reinforcement learning", 2015.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import expm1, log1p
from random import Random

import numpy as np
import torch
from sklearn.ensemble import RandomForestRegressor
from torch import Tensor, nn

from ecoshare.contrib.chains.gradient_boosting import GradientBoosting
from ecoshare.contrib.chains.provisioner import Decision, Provisioner
from ecoshare.contrib.chains.queue_sight import QueueSight
from ecoshare.contrib.chains.simulated_chain import ChainResult, ChainSpec, QueueReplay, run_chain
from ecoshare.contrib.chains.wait_predictor import EXPECTED, LONGEST_S, WaitSample, features

WORTH = 9.0
"""Seconds of overlap that a second of interruption costs."""

AHEAD = 3
"""Largest number of successors that wait at once."""

_TREES, _LEAF = 100, 20
_HIDDEN, _RATE = 32, 3e-3
_LOOKS = 24
"""Number of looks at the queue in a limit."""

_BATCH = 8
"""Number of chains between two steps of the policy gradient."""

MARGIN, _IMITATION_STEPS = 0.5, 300
"""Margin of the rule that both policies begin with, as part of the limit, and steps of the imitation."""

_SPREAD, _DISCOUNT, _STEPS = 0.1, 0.98, 8
"""Part of random decisions of the Q-network while it learns, its discount from look to look, and steps for a chain."""


class RandomForest:
    """Predictor of waits; see `GradientBoosting`. The quantile is that of the trees' predictions."""

    def __init__(self, samples: Sequence[WaitSample], quantile: float) -> None:
        """Fit the forest to waits of the past."""
        self._quantile = quantile
        rows = np.array([sample.features for sample in samples])
        beyond = [log1p(sample.wait_s) - log1p(sample.features[EXPECTED]) for sample in samples]
        self._forest = RandomForestRegressor(_TREES, min_samples_leaf=_LEAF, random_state=0).fit(rows, beyond)

    def wait_s(self, sight: QueueSight, gpus: int, limit_s: float) -> float:
        """Wait (s) that a job should be given."""
        row = features(sight, gpus, limit_s)
        beyond = [float(tree.predict([row])[0]) for tree in self._forest.estimators_]
        found_s = expm1(float(np.quantile(beyond, self._quantile)) + log1p(row[EXPECTED]))
        return min(max(0.0, found_s), LONGEST_S)


Choose = Callable[[Tensor], bool]
"""Whether to submit, by the state of a look."""


@dataclass(frozen=True, slots=True)
class LearnedRule(Provisioner):
    """Rule with decisions of a network.

    Attributes:
        choose: Decides.
        states: State of each look so far, with the decision.
    """

    choose: Choose = field(default=lambda _state: False)
    states: list[tuple[Tensor, bool]] = field(default_factory=list)

    def decide(self, sight: QueueSight, remaining_s: float, gpus: int, limit_s: float) -> Decision:
        row = features(sight, gpus, limit_s)
        boosted = self.predictor
        assert isinstance(boosted, GradientBoosting)
        wait_s = boosted.wait_of(row)
        state = state_of(row, remaining_s, wait_s, limit_s)
        submit = remaining_s < 1.0 or self.choose(state)
        self.states.append((state, submit))
        look_s = 0.0 if submit else max(1.0, min(limit_s / _LOOKS, remaining_s))
        return Decision(submit, look_s, remaining_s, wait_s)


def state_of(row: tuple[float, ...], remaining_s: float, wait_s: float, limit_s: float) -> Tensor:
    """State of a look: shape (19,), numbers of about 1."""
    scaled = [log1p(max(0.0, value)) / 10.0 if abs(value) > 2.0 else value for value in row]
    return torch.tensor([*scaled, remaining_s / limit_s, log1p(wait_s) / 10.0, (remaining_s - wait_s) / limit_s])


def network() -> nn.Sequential:
    """Network from a state to a number for each decision: to wait, and to submit."""
    return nn.Sequential(
        nn.Linear(19, _HIDDEN), nn.Tanh(), nn.Linear(_HIDDEN, _HIDDEN), nn.Tanh(), nn.Linear(_HIDDEN, 2)
    )


def cost(result: ChainResult) -> float:
    """Cost of a chain, as part of its work."""
    return (WORTH * result.interruption_s + result.overlap_s) / result.work_s


Transition = tuple[Tensor, int, float, Tensor | None]
"""State of a look, decision, reward, and state of the next look; None after the last one."""


Chains = Sequence[tuple[QueueReplay, ChainSpec]]
"""Chains to learn from, each with the queue at its first submission."""


def policy_gradient(predictor: GradientBoosting, chains: Chains, usual: Provisioner) -> Provisioner:
    """Policy that REINFORCE has learned.

    Args:
        predictor: Predictor of the waits that are part of the state.
        chains: The chains, in the order of training.
        usual: Rule with which each chain is compared.
    """
    torch.manual_seed(0)
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), _RATE)
    imitate(net, optimizer, predictor, chains[: len(chains) // 4])
    loss = torch.zeros(())
    for number, (replay, spec) in enumerate(chains, start=1):
        rule = LearnedRule(predictor, ahead=AHEAD, choose=lambda state: bool(torch.rand(()) < submits(net, state)))
        gain = cost(run_chain(replay.copy(), spec, usual)) - cost(run_chain(replay.copy(), spec, rule))
        if rule.states:
            states = torch.stack([state for state, _ in rule.states])
            taken = torch.tensor([int(submit) for _, submit in rule.states])
            chosen = net(states).log_softmax(1)
            entropy = -(chosen.exp() * chosen).sum(1).mean()
            loss = loss - gain * chosen.gather(1, taken[:, None]).mean() - 0.01 * entropy
        if number % _BATCH == 0 and loss.requires_grad:
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            loss = torch.zeros(())
    return LearnedRule(predictor, ahead=AHEAD, choose=lambda state: bool(submits(net, state) > 0.5))


def teacher(state: Tensor) -> bool:
    """Decision of a rule with a margin of half of the limit."""
    return bool(state[-1] <= MARGIN)


def imitate(net: nn.Module, optimizer: torch.optim.Optimizer, predictor: GradientBoosting, chains: Chains) -> None:
    """Let a network begin with the decisions of the teacher."""
    looks = list[tuple[Tensor, bool]]()
    for replay, spec in chains:
        rule = LearnedRule(predictor, ahead=AHEAD, choose=teacher)
        run_chain(replay.copy(), spec, rule)
        looks += rule.states
    states, taken = torch.stack([state for state, _ in looks]), torch.tensor([int(submit) for _, submit in looks])
    for _ in range(_IMITATION_STEPS):
        loss = nn.functional.cross_entropy(net(states), taken)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@torch.no_grad()
def submits(net: nn.Module, state: Tensor) -> float:
    """Probability of a submission."""
    return float(net(state).softmax(0)[1])


def deep_q(predictor: GradientBoosting, chains: Chains) -> Provisioner:
    """Policy of a deep Q-network: the reward of a submission is that of its hand-over.

    Args:
        predictor: Predictor of the waits that are part of the state.
        chains: The chains, in the order of training.
    """
    torch.manual_seed(0)
    random, net, target = Random(0), network(), network()
    target.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), _RATE)
    seen: list[Transition] = []

    def greedy(state: Tensor) -> bool:
        with torch.no_grad():
            wait, submit = net(state).tolist()
        return bool(submit > wait)

    def choose(state: Tensor) -> bool:
        if random.random() < _SPREAD:
            return random.random() < _SPREAD
        return teacher(state) if number <= len(chains) // 4 else greedy(state)

    for number, (replay, spec) in enumerate(chains, start=1):
        rule = LearnedRule(predictor, ahead=AHEAD, choose=choose)
        seen += transitions(run_chain(replay.copy(), spec, rule), rule.states)
        for _ in range(_STEPS if len(seen) > 256 else 0):
            batch = random.sample(seen, 128)
            states, taken = torch.stack([each[0] for each in batch]), torch.tensor([each[1] for each in batch])
            after = torch.stack([each[3] if each[3] is not None else each[0] for each in batch])
            goes_on = torch.tensor([each[3] is not None for each in batch])
            with torch.no_grad():
                best = target(after).gather(1, net(after).argmax(1, keepdim=True))[:, 0]  # double Q-learning
            aimed = torch.tensor([each[2] for each in batch]) + _DISCOUNT * best * goes_on
            loss = nn.functional.smooth_l1_loss(net(states).gather(1, taken[:, None])[:, 0], aimed)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        if number % 10 == 0:
            target.load_state_dict(net.state_dict())
    return LearnedRule(predictor, ahead=AHEAD, choose=greedy)


def transitions(result: ChainResult, states: Sequence[tuple[Tensor, bool]]) -> list[Transition]:
    """Transitions of a chain: the reward of a submission, in days, is that of its hand-over."""
    rewards = iter(-(WORTH * each.interruption_s + each.overlap_s) / 3600.0 / 24.0 for each in result.hand_overs)
    found = []
    for place, (state, submit) in enumerate(states):
        reward = next(rewards, 0.0) if submit else 0.0
        found.append((state, int(submit), reward, states[place + 1][0] if place + 1 < len(states) else None))
    return found


def training_chains(replay: QueueReplay, drawn: Sequence[tuple[float, ChainSpec]], rounds: int) -> Chains:
    """Chains with the queues that they begin in, several times in random order.

    Args:
        replay: Queue before the first of them; the call moves its clock.
        drawn: Begin (s) and form of each chain, in the order of time.
        rounds: Number of times that each chain is used.
    """
    begun = []
    for at_s, spec in drawn:
        replay.advance(at_s)
        begun.append((replay.copy(), replace(spec)))
    random, found = Random(0), []
    for _ in range(rounds):
        found += random.sample(begun, len(begun))
    return found
