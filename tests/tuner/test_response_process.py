"""The process: samples are those of the Gaussian process, and evidence chooses its form."""

from __future__ import annotations

import pytest
import torch

from tuner import Evaluation, EvaluationStatus, Knob, Prior, Role, Space
from tuner.response_process import Hypothesis, ResponseProcess, hypotheses

SPACE = Space.product(Knob("core", tuple(float(mhz) for mhz in range(500, 1500, 100)), Role.CORE_CLOCK))
LOGS = torch.from_numpy(SPACE.numbers[:, 0] / 1000.0).log()


def straight(slope_sd: float = 0.3, seed: int = 0) -> Prior:
    """Responses that are proportional to the logarithm of the clock, with a slope of about -1 for the time."""
    draw = torch.Generator().manual_seed(seed)
    slopes = torch.randn(300, 2, 1, dtype=torch.double, generator=draw) * slope_sd
    slopes[:, 1] -= 1.0
    return Prior.of_samples(("power_w", "time_s"), slopes * LOGS, (5.0, 5.0))


def trial(
    core: float, power_w: float, time_s: float, status: EvaluationStatus = EvaluationStatus.MEASURED
) -> Evaluation:
    return Evaluation({"core": core}, {"power_w": power_w, "time_s": time_s}, status)


@pytest.mark.nightly
def test_the_samples_have_the_moments_of_the_conditioned_process() -> None:
    prior, form = straight(), Hypothesis(True, 0.05, 0.02, 1.0)
    process = ResponseProcess(SPACE, prior, [form], seed=1, samples=20_000)
    trials = [trial(1400.0, 200.0, 0.1), trial(900.0, 130.0, 0.15)]
    logs = process.condition(trials)
    values = torch.tensor([200.0, 0.1, 130.0, 0.15], dtype=torch.double).log()
    known = [9, 19, 4, 14]  # power and time at 1,400 MHz, then at 900 MHz
    covariance = whole_covariance(prior, form)
    noisy = covariance[known][:, known] + form.noise_sd**2 * torch.eye(4, dtype=torch.double)
    gain = torch.linalg.solve(noisy, covariance[known]).T  # (20, 4)
    mean = prior.mean.reshape(-1)
    mean = mean + gain @ (values - mean[known])
    spread = (covariance - gain @ covariance[known]).diagonal().sqrt()
    assert torch.allclose(logs.mean(dim=0).reshape(-1), mean, atol=0.01)
    assert torch.allclose(logs.std(dim=0).reshape(-1), spread, rtol=0.05, atol=0.002)


def whole_covariance(prior: Prior, form: Hypothesis) -> torch.Tensor:
    """Covariance of both observables at all settings, (20, 20), by the formulas."""
    (part,) = prior.parts
    root = part.root.flatten(start_dim=1)
    features = torch.from_numpy(SPACE.features)
    away = 5**0.5 * torch.cdist(features, features) / 0.5
    matern = (1 + away + away.square() / 3) * torch.exp(-away)
    whole = root.T @ root
    for place, scale_sd in enumerate(prior.scale_sd.tolist()):
        own = slice(10 * place, 10 * place + 10)
        whole[own, own] += form.residual_sd**2 * matern + scale_sd**2
    return whole


def weight_of_structure(trials: list[Evaluation]) -> float:
    """Part of the samples that come from hypotheses in which the prior holds."""
    process = ResponseProcess(SPACE, straight(0.05), hypotheses(), seed=0)
    observable = torch.tensor([o for _ in trials for o in (0, 1)])
    setting = torch.tensor([SPACE.index(each.setting) for each in trials for _ in (0, 1)])
    values = torch.tensor([value for each in trials for value in each.observed.values()], dtype=torch.double).log()
    shares = process._shares(process._fits(observable, setting, values))
    return float(sum(share for share, form in zip(shares, process._forms, strict=True) if form.structured))


def test_a_prior_that_misleads_is_switched_off_by_evidence() -> None:
    as_expected = [trial(core, 200.0, 100.0 / core) for core in (1400.0, 1100.0, 800.0, 500.0)]
    against = [trial(core, 200.0, core / 5000.0) for core in (1400.0, 1100.0, 800.0, 500.0)]
    assert weight_of_structure(as_expected) > 0.95
    assert weight_of_structure(against) < 0.05


def test_a_trial_that_was_stopped_early_bounds_the_time_from_below() -> None:
    process = ResponseProcess(SPACE, straight(), [Hypothesis(True, 0.03, 0.01, 1.0)], seed=0)
    first = trial(1400.0, 200.0, 0.1)
    logs = process.condition([first, trial(500.0, 90.0, 0.3, EvaluationStatus.CENSORED)])
    place = SPACE.index({"core": 500.0})
    assert float(logs[:, 1, place].exp().min()) >= 0.3
    assert float(logs[:, 1, place].mean()) > float(process.condition([first])[:, 1, place].mean())


def test_a_bound_that_no_sample_keeps_leaves_all_of_them() -> None:
    process = ResponseProcess(SPACE, straight(), [Hypothesis(True, 0.03, 0.01, 1.0)], seed=0, samples=64)
    assert len(process.condition([trial(1400.0, 200.0, 0.1), trial(500.0, 9.0, 1e9, EvaluationStatus.CENSORED)])) == 64


def test_contaminated_and_failed_trials_teach_nothing() -> None:
    process = ResponseProcess(SPACE, straight(), hypotheses(), seed=0)
    first = trial(1400.0, 200.0, 0.1)
    known = process.condition([first])
    more = [
        trial(700.0, 5.0, 9.0, EvaluationStatus.CONTAMINATED),
        Evaluation({"core": 600.0}, {}, EvaluationStatus.FAILED),
    ]
    assert torch.equal(known, process.condition([first, *more]))
