"""The model as one of botorch: its own acquisition functions work on it, and ours is one of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.logei import (
    qLogExpectedImprovement,
    qLogNoisyExpectedImprovement,
    qLogProbabilityOfFeasibility,
)
from botorch.acquisition.monte_carlo import (
    qLowerConfidenceBound,
    qNoisyExpectedImprovement,
    qProbabilityOfImprovement,
    qSimpleRegret,
    qUpperConfidenceBound,
)
from botorch.acquisition.objective import LinearMCObjective
from botorch.exceptions.warnings import NumericsWarning
from botorch.generation.sampling import MaxPosteriorSampling
from botorch.optim.optimize import optimize_acqf_discrete
from torch import Tensor

from tests.tuner.test_tuner import DEFAULT, SPACE, Device, make
from tuner import ConstrainedTuner
from tuner.acquisition import CautiousImprovement
from tuner.response_model import ResponseModel, ResponsePosterior, joint_samples


@pytest.fixture(scope="module")
def tuned() -> ConstrainedTuner:
    """A tuner that was told a few measurements."""
    device, found = Device(3), make()
    for _ in range(4):
        setting = found.ask()
        found.tell(setting, device.measure(setting))
    return found


def posterior_of(tuned: ConstrainedTuner, outputs: list[int] | None = None) -> ResponsePosterior:
    """Posterior at all settings."""
    found = tuned.model.posterior(tuned.model.points, output_indices=outputs)
    assert isinstance(found, ResponsePosterior)
    return found


def test_samples_at_two_points_go_together_whether_asked_together_or_apart(tuned: ConstrainedTuner) -> None:
    model = tuned.model
    together = joint_samples(model, model.points[[3, 17]])  # (S, 2, m)
    apart = [joint_samples(model, model.points[[place]]) for place in (3, 17)]
    assert torch.equal(together, torch.cat(apart, dim=1))
    batch = joint_samples(model, model.points[[3, 17]][:, None])  # (S, 2, 1, m)
    assert torch.equal(batch.squeeze(2), together)


def test_mean_and_variance_are_those_of_the_samples(tuned: ConstrainedTuner) -> None:
    posterior, samples = posterior_of(tuned), joint_samples(tuned.model, tuned.model.points)
    assert torch.allclose(posterior.mean, samples.mean(dim=0))
    assert torch.allclose(posterior.variance, samples.var(dim=0))
    drawn = posterior.rsample(torch.Size([4000]))
    assert drawn.shape == (4000, len(SPACE), 4)
    assert torch.allclose(drawn.mean(dim=0), posterior.mean, atol=0.02)


def test_the_second_half_of_the_outputs_is_the_default(tuned: ConstrainedTuner) -> None:
    assert tuned.model.outputs == ("power_w", "time_s", "power_w at the default", "time_s at the default")
    at_default = joint_samples(tuned.model, tuned.model.point(DEFAULT))
    assert torch.equal(at_default[..., :2], at_default[..., 2:])
    assert torch.equal(posterior_of(tuned, [1]).mean, posterior_of(tuned).mean[..., [1]])


def test_a_point_is_a_setting(tuned: ConstrainedTuner) -> None:
    assert tuned.model.setting(tuned.model.point(DEFAULT)) == DEFAULT
    with pytest.raises(ValueError, match="no setting of the space"):
        tuned.model.posterior(tuned.model.points + 0.01)


def test_without_caution_ours_is_the_noisy_expected_improvement_of_botorch(tuned: ConstrainedTuner) -> None:
    points = tuned.model.points[:, None]
    theirs = qLogNoisyExpectedImprovement(
        tuned.model,
        tuned.baseline,
        objective=tuned.objective,
        constraints=tuned.constraints,
        prune_baseline=False,
    )
    ours = CautiousImprovement(tuned.model, tuned.baseline, tuned.objective, tuned.constraints, 0.0)
    assert torch.allclose(ours(points), theirs(points), atol=1e-9)
    feasible = qLogProbabilityOfFeasibility(tuned.model, tuned.constraints)(points)
    careful = CautiousImprovement(tuned.model, tuned.baseline, tuned.objective, tuned.constraints, 0.5)
    assert torch.allclose(careful(points), theirs(points) + 0.5 * feasible, atol=1e-9)


def test_the_tuner_asks_for_the_best_of_its_acquisition_function(tuned: ConstrainedTuner) -> None:
    function = CautiousImprovement(tuned.model, tuned.baseline, tuned.objective, tuned.constraints, 0.5)
    point, _ = optimize_acqf_discrete(function, q=1, choices=tuned.model.points)
    assert tuned.model.setting(point) == tuned.ask()


OTHERS: dict[str, Callable[[ConstrainedTuner], AcquisitionFunction]] = {
    "qLogEI": lambda t: qLogExpectedImprovement(t.model, 0.0, objective=t.objective, constraints=t.constraints),
    "qLogNEI": lambda t: qLogNoisyExpectedImprovement(
        t.model, t.baseline, objective=t.objective, constraints=t.constraints
    ),
    "qNEI": lambda t: qNoisyExpectedImprovement(t.model, t.baseline, objective=t.objective, constraints=t.constraints),
    "qPI": lambda t: qProbabilityOfImprovement(t.model, 0.0, objective=t.objective, constraints=t.constraints),
    "qUCB": lambda t: qUpperConfidenceBound(t.model, 2.0, objective=t.objective),
    "qLCB": lambda t: qLowerConfidenceBound(t.model, 0.5, objective=t.objective),
    "qSR": lambda t: qSimpleRegret(t.model, objective=LinearMCObjective(torch.tensor([-1.0, -1.0, 1.0, 1.0]).double())),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.filterwarnings(f"ignore::{NumericsWarning.__module__}.{NumericsWarning.__name__}")  # qNEI is the older one
def test_other_acquisition_functions_of_botorch_work(tuned: ConstrainedTuner, name: str) -> None:
    """Each finds a setting, by the model's own expectation at most a few percent dearer than the default."""
    for q in (1, 2):
        points, value = optimize_acqf_discrete(OTHERS[name](tuned), q=q, choices=tuned.model.points)
        assert points.shape == (q, tuned.model.points.shape[1]) and bool(value.isfinite().all())
        first = tuned.model.setting(points[0])
        expected = tuned.objective(joint_samples(tuned.model, tuned.model.point(first))).mean()
        assert float(expected) > -0.03, first


def test_thompson_sampling_works(tuned: ConstrainedTuner) -> None:
    drawn = MaxPosteriorSampling(tuned.model, objective=tuned.objective, replacement=True)(tuned.model.points, 64)
    settings = [tuned.model.setting(point) for point in drawn]
    assert len(settings) == 64 and all(setting in SPACE.settings for setting in settings)


def test_a_model_of_few_members_serves_any_number_of_samples() -> None:
    logs = torch.randn(5, 1, len(SPACE), generator=torch.Generator().manual_seed(0)).double()
    model = ResponseModel(SPACE, ["power_w"], DEFAULT, logs)
    samples: Tensor = joint_samples(model, model.points)[..., 0]
    assert {tuple(each) for each in samples.tolist()} == {tuple(each) for each in logs[:, 0].tolist()}
