"""Next measurement of a search that may not break a limit: the best sure setting, or a sure one that teaches most.

A setting is sure if it keeps every limit with a given probability. If no sure setting promises a gain, the step widens
the set of sure settings: it measures a sure setting, new or known, that tells most of the one with the largest expected
gain. The idea is that of SafeOpt (Sui et al., "Safe Exploration for Optimization with Gaussian Processes", ICML 2015),
with joint samples in place of confidence intervals and Lipschitz constants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tuner.evaluations import EvaluationStatus
from tuner.response_process import NOISE
from tuner.space import Value
from tuner.tuner import ConstrainedTuner, one_thread

_LEAST_TOLD = 0.05
"""Least part of the variance of a setting's excess that another measurement explains, to be worth it."""


@dataclass(frozen=True)
class SureStep:
    """Next measurement.

    Attributes:
        setting: Setting to measure; None if no sure setting promises a gain or teaches anything.
        gain: Largest expected gain of any setting, as a part of the objective.
    """

    setting: dict[str, Value] | None
    gain: float


def sure_step(tuner: ConstrainedTuner, confidence: float, least_gain: float) -> SureStep:
    """Next measurement of a tuner that knows a setting which keeps the limits.

    Args:
        tuner: The tuner, with at least one evaluation.
        confidence: Least probability that a sure setting keeps every limit.
        least_gain: Least gain, as a part of the objective, that is worth a measurement.
    """
    with one_thread():
        look, settings = tuner.outlook, tuner.space.settings
        tried = torch.zeros(len(settings), dtype=torch.bool)
        closed = tried.clone()
        for trial in tuner.trials:
            place = tuner.space.index(trial.setting)
            tried[place] = True
            closed[place] |= trial.status is not EvaluationStatus.MEASURED
        sure = (look.log_feasible.exp() >= confidence) & ~closed
        best = tuner.best()
        least = math.inf if best is None else math.log(best.objective) + math.log1p(-least_gain)
        promising = sure & ~tried & (look.mean <= least)
        gain = torch.where(tried, 0.0, look.log_gain.exp())
        if bool(promising.any()):
            return _at(tuner, torch.where(promising, look.score, -torch.inf), gain)
        unsure = ~sure & ~tried
        wanted = int(torch.where(unsure, gain, -1.0).argmax())
        if not bool(unsure[wanted]) or float(gain[wanted]) < least_gain or not bool(sure.any()):
            return SureStep(None, float(gain.max()))
        told = torch.where(sure, _told(tuner, wanted), -torch.inf)
        if float(told.max()) < _LEAST_TOLD:
            return SureStep(None, float(gain.max()))
        return _at(tuner, told, gain)


def _at(tuner: ConstrainedTuner, score: Tensor, gain: Tensor) -> SureStep:
    return SureStep(dict(tuner.space.settings[int(score.argmax())]), float(gain.max()))


def _told(tuner: ConstrainedTuner, wanted: int) -> Tensor:  # (n,)
    """Part of the variance of the worst excess at a setting that a measurement at each setting explains."""
    point = tuner.model.points[[wanted]]
    samples = tuner.model.members(point)[:, 0]  # (S, 2 O)
    excess = torch.stack([each(samples) for each in tuner.constraints]).amax(dim=0)
    excess = excess - excess.mean()
    count = tuner.model.num_outputs // 2
    logs = tuner.model.members(tuner.model.points)[..., :count]  # (S, n, O)
    logs = logs - logs.mean(dim=0)
    noise = torch.diag((NOISE * tuner.spread).square())
    covariance = torch.einsum("sno,snp->nop", logs, logs) / len(logs) + noise
    shared = torch.einsum("sno,s->no", logs, excess) / len(logs)
    explained = (shared * torch.linalg.solve(covariance, shared)).sum(dim=1)
    part: Tensor = explained / excess.square().mean().clamp_min(1e-12)
    return part
