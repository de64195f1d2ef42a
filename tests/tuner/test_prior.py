"""Priors: the moments of sample responses, and the physical model that gives them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tuner import Knob, Prior, Role, Space
from tuner.physics import grey_box, responses


def covariance(prior: Prior) -> torch.Tensor:
    whole = torch.zeros(())
    for part in prior.parts:
        root, away = part.root.flatten(start_dim=1), (part.mean - prior.mean).flatten()
        whole = whole + part.weight * (root.T @ root + torch.outer(away, away))
    return whole


def test_the_moments_are_those_of_the_samples() -> None:
    samples = torch.randn(40, 2, 6, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    prior = Prior.of_samples(("a", "b"), samples, (1.0, 1.0))
    assert torch.allclose(prior.mean, samples.mean(dim=0))
    assert torch.allclose(covariance(prior), torch.cov(samples.reshape(40, -1).T), atol=1e-9)


def test_a_mixture_has_the_moments_of_both_together() -> None:
    draw = torch.Generator().manual_seed(2)
    first = torch.randn(60, 1, 4, dtype=torch.double, generator=draw)
    second = 3.0 + 0.1 * torch.randn(60, 1, 4, dtype=torch.double, generator=draw)
    parts = [Prior.of_samples(("a",), each, (1.0,)) for each in (first, second)]
    mixed = Prior.mixture([(1.0, parts[0]), (1.0, parts[1])])
    whole = Prior.of_samples(("a",), torch.cat([first, second]), (1.0,))
    assert torch.allclose(mixed.mean, whole.mean)
    assert torch.allclose(covariance(mixed), covariance(whole), rtol=0.02, atol=0.02)
    with pytest.raises(ValueError, match="different observables"):
        Prior.mixture([(1.0, parts[0]), (1.0, Prior.of_samples(("b",), first, (1.0,)))])


def test_samples_of_two_kinds_become_two_parts() -> None:
    draw = torch.Generator().manual_seed(4)
    noise = 0.1 * torch.randn(300, 1, 5, dtype=torch.double, generator=draw)
    kind = (torch.arange(300) % 3 == 0).double()[:, None, None]
    prior = Prior.of_samples(("a",), noise + 2.0 * kind, (1.0,), parts=2)
    assert sorted(round(part.weight, 3) for part in prior.parts) == [0.333, 0.667]
    assert sorted(round(float(part.mean.mean())) for part in prior.parts) == [0, 2]
    few = Prior.of_samples(("a",), noise[:20], (1.0,), parts=2)
    assert len(few.parts) == 1, "too few to split"


def test_a_large_prior_keeps_nearly_all_of_its_variance() -> None:
    draw = torch.Generator().manual_seed(3)
    smooth = torch.randn(400, 10, dtype=torch.double, generator=draw) @ torch.randn(
        10, 900, dtype=torch.double, generator=draw
    )
    prior = Prior.of_samples(("a",), smooth.reshape(400, 1, 900), (1.0,))
    exact = torch.cov(smooth.T)
    assert torch.allclose(covariance(prior), exact, atol=1e-3 * float(exact.abs().max()))
    assert len(prior.parts[0].root) <= 48


CORE = Knob("core", tuple(float(mhz) for mhz in range(600, 1500, 100)), Role.CORE_CLOCK)
MEMORY = Knob("memory", (800.0, 3500.0), Role.MEMORY_CLOCK)
LIMIT = Knob("limit", (100.0, 150.0, 200.0, 250.0), Role.POWER_LIMIT)
BATCH = Knob("batch", (16.0, 64.0, 256.0), Role.WORK_SIZE)


@given(st.integers(0, 10_000), st.integers(1, 3))
def test_a_lower_clock_is_never_faster_and_never_draws_more(seed: int, jobs: int) -> None:
    space = Space.product(CORE, MEMORY)
    drawn = responses(space, jobs, {"core": 1400.0, "memory": 3500.0}, seed, 8)
    for memory in MEMORY.values:
        line = drawn[:, :, [space.index({"core": core, "memory": memory}) for core in CORE.values]]
        assert (np.diff(line[:, 1:], axis=2) <= 1e-9).all(), "time falls as the clock rises"
        assert (np.diff(line[:, 0], axis=1) >= -1e-9).all(), "power rises with it"


@given(st.integers(0, 10_000))
def test_a_power_limit_costs_time_only_where_it_binds(seed: int) -> None:
    """A power limit may bind in the hungrier phase of a step while the mean is below it, but not far below."""
    space = Space.product(LIMIT, BATCH)
    drawn = responses(space, 1, {"limit": 250.0, "batch": 64.0}, seed, 8)
    for batch in BATCH.values:
        places = [space.index({"limit": limit, "batch": batch}) for limit in LIMIT.values]
        power, time = np.exp(drawn[:, 0, places]), drawn[:, 1, places]
        # The mean of the power may fall as the limit rises: the phase that draws more is over sooner.
        assert (np.diff(time, axis=1) <= 1e-9).all()
        free = power[:, :-1] < np.array(LIMIT.values[:-1]) * 0.5
        slower = time[:, :-1] > time[:, [-1]] + 1e-6
        assert not (free & slower).any()
        least = power[:, [0]] > LIMIT.values[0] * 0.999  # the lowest clock's
        assert not ((power > np.array(LIMIT.values) * 1.001) & ~least).any()


def test_a_fixed_amount_of_work_does_not_take_longer_in_larger_steps_than_in_much_smaller_ones_as_a_rule() -> None:
    space = Space.product(BATCH)
    drawn = responses(space, 1, {"batch": 64.0}, 0, 500)
    small, _, large = (drawn[:, 1, space.index({"batch": batch})] for batch in BATCH.values)
    assert np.mean(large < small) > 0.8


def test_the_physical_prior_is_the_same_each_time() -> None:
    space = Space.product(CORE, Knob("prefetch", (1.0, 2.0, 4.0)))
    default = {"core": 1400.0, "prefetch": 1.0}
    one, other = (grey_box(space, ["time_s"], default, seed=3, samples=50) for _ in range(2))
    assert torch.equal(one.mean, other.mean)
    assert all(torch.equal(a.root, b.root) for a, b in zip(one.parts, other.parts, strict=True))
    at = space.index(default)
    assert torch.allclose(one.mean[:, at], torch.zeros(2, dtype=torch.double)), "ratios to the default"
