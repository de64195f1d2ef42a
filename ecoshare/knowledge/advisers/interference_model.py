"""Interference model: how fast two job classes run beside each other, from measurements of classes and of pairs.

The model is a Gaussian process on y(A, B), the logarithm of the speed of A beside B / the speed of A alone. A pair has
two sides. A measurement of one side, or of other pairs of either class, says something about both::

    y(A, B) = m(A, B) + g(A, B) (c + u(A) + v(B) + p(A, B) + l s2(A, B) + e(A, B))

    g   how often both want the device at once, as far as both classes tell how busy they are
    m   mean before any measurement: the time is shared according to how busy each class is
    c   level of all pairs of this device                      variance  level
    u   how much A suffers from any neighbour                            suffers s1(A, A') + own_suffers [A = A']
    v   how much any neighbour suffers from B; correlation with u: r     hurts s1(B, B') + own_hurts [B = B']
    p   effect that only these two kinds of classes have                 together s2(A, A') s2(B, B'), and the same with
                                                                         the sides of one pair exchanged, times r2
    l   whether similar classes hurt each other more than others         alike
    e   effect of this pair of classes alone                             pair [A = A'][B = B'], and exchanged, times r3
    s   similarity: (1 - f + f [same family]) exp(-d^2 / 2 l^2), d^2 the mean squared distance of the standardised
        numbers; s1 has scale_1 and family_1 for l and f, s2 has scale_2 and family_2

A larger packing shows a part of its delays for each of its pairs. Three jobs may slow each other more or less than
their pairs do, by a factor that all of these parts share: its logarithm has the standard deviation `LARGER_SD`. So a
packing of three that is ten times slower does not make each pair look slow.

A measured effect that is beyond `EXTREME` of what all other packings lead to expect is taken as that limit when other
pairs are predicted. Contention has steps for which this model has no term, such as a memory bandwidth that is used up.
A first pair that is ten times slower would otherwise make each other pair look slow, and none of them would be tried.
The effect that the others lead to expect is from the same book, equations 5.10 to 5.12, with all sides of a packing
left out.

The hyperparameters have a prior and are fitted as in Rasmussen, Williams, "Gaussian Processes for Machine Learning",
2006, equations 5.8 and 5.9.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ecoshare.core.placement.colocation_estimates import GPU_GUESS, FirstGuess

Array = NDArray[np.float64]

RARELY = 0.25
"""Least g of a pair. Jobs that hardly use the device still share what no profile shows: processors, memory, disk."""


@dataclass(frozen=True, slots=True)
class Traits:
    """Knowledge of a class alone.

    Attributes:
        family: Script of the class. Classes of one script behave alike. Empty if the class is like no other.
        numbers: Features by name, such as `busy`. Unknown features are left out.
    """

    family: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)


def expected_speeds(known: Sequence[Traits], guess: FirstGuess) -> Array:  # (n_classes, n_classes)
    """Relative speed of each class beside each other one before any measurement."""
    busy = [None if np.isnan(each) else float(each) for each in _busy(known)]
    return np.array([[guess.speed(one, other) for other in busy] for one in busy])


def at_once(known: Sequence[Traits]) -> Array:  # (n_classes, n_classes)
    """How often both classes of a pair want the device at once: g of the model, in [`RARELY`, 1]; 1 if unknown.

    A job can delay another one only while both want the device: for the product of both busy parts if the jobs are
    independent, and for the lesser part if they are in step. The geometric mean is larger than both, to be cautious.
    """
    busy = _busy(known)
    both = np.sqrt(busy[:, None] * busy[None])
    return np.where(np.isfinite(both), np.maximum(both, RARELY), 1.0)


def _busy(known: Sequence[Traits]) -> Array:  # (n_classes,), NaN where it is unknown
    return np.clip([each.numbers.get("busy", np.nan) for each in known], 0.0, 1.0)


def distances(known: Sequence[Traits]) -> Array:  # (n_classes, n_classes)
    """Mean squared distances between standardised numbers. An unknown number counts as the mean of the known ones."""
    total, used = np.zeros((len(known), len(known))), 0
    for name in sorted({name for each in known for name in each.numbers}):
        column = np.array([each.numbers.get(name, np.nan) for each in known], dtype=np.float64)
        there = column[np.isfinite(column)]
        size = float(np.abs(there).max(initial=0.0))
        if not size:
            continue
        column, there = column / size, there / size
        spread = float(there.std())
        if spread < 1e-9:
            continue
        column = np.where(np.isfinite(column), (column - there.mean()) / spread, 0.0)
        total += (column[:, None] - column[None]) ** 2
        used += 1
    # The mean and not the sum: length scales hold for any count of numbers.
    return total / max(1, used)


Places = NDArray[np.intp]

SHIPPED = {
    "level": -3.0,
    "suffers": -3.6,
    "hurts": -2.6,
    "own_suffers": -5.4,
    "own_hurts": -6.0,
    "both": -0.6,
    "together": -3.4,
    "both_together": 0.0,
    "alike": -4.8,
    "pair": -6.3,
    "both_pair": 0.3,
    "noise": -8.1,
    "scale_1": -0.1,
    "family_1": -0.1,
    "scale_2": 0.1,
    "family_2": 0.3,
}
"""Default hyperparameters: logarithms of variances and length scales, atanh of correlations (`both*`), logits of
`family*`. They are the mean of the values that fit Gavel's tables of three models of GPU, if as much is known of each
job type as a profile tells and the tables have: script and iteration time (`scripts/bench_interference.py --data DIR
--fit`). Benchmarks on these tables fit their own, without the judged job types or the judged model of GPU."""

ENOUGH = 12
"""Least number of measured pairs for a fit of the hyperparameters: fewer do not determine 16 of them."""

EXTREME = 1.5
"""Largest distance of a measured effect from the expected one, in standard deviations, that says something about other
pairs. The rest of a larger one is of its pair alone."""

LARGER_SD = 0.7
"""Standard deviation of the logarithm of the factor by which a packing of three or more differs from its pairs."""

SLOWEST = 0.02
"""Lower bound of a measured speed: the logarithm of a lower one would outweigh everything else."""

_MOST_FITTED = 100
"""Most measured pairs that are used in the fit, to limit its time."""

_SPREAD = {"scale_1": 0.5, "scale_2": 0.5, "noise": 0.7}
_USUAL_SPREAD = 1.0
"""Standard deviations of the prior around `SHIPPED`."""

_JITTER = 1e-8
_SEARCH = {"maxiter": 20, "maxfun": 30}


class PairMeasurement(NamedTuple):
    """Measurement of class `one` beside class `other`.

    Attributes:
        one: Class that the speed is about.
        other: Class of the neighbour.
        speed: Relative speed: rate beside the neighbour / rate alone.
        packing: Number of the larger packing that shows it as a part of its delays; 0 if the pair was measured.
    """

    one: str
    other: str
    speed: float
    packing: int = 0


class SpeedEstimate(NamedTuple):
    """Expected relative speed and its standard deviation."""

    mean: float
    sd: float


class InterferenceModel:
    """Model that predicts the relative speeds of pairs, each job in a lane of its own on one device.

    Attributes:
        hyperparameters: Values in use, fitted or those of `centre`.
    """

    def __init__(
        self,
        traits: Mapping[str, Traits],
        seen: Sequence[PairMeasurement],
        guess: FirstGuess = GPU_GUESS,
        fit: bool = True,
        centre: Mapping[str, float] = SHIPPED,
    ) -> None:
        """Fit the model and predict all pairs.

        Args:
            traits: Knowledge of each class alone, by name.
            seen: Measured pairs in any order. A pair may occur more than once.
            guess: Expected speeds before any measurement.
            fit: Whether the hyperparameters are fitted if there are `ENOUGH` measured pairs.
            centre: Mean of the prior of the hyperparameters, and their values without a fit.
        """
        names = sorted({*traits, *(each.one for each in seen), *(each.other for each in seen)})
        self._places = {name: place for place, name in enumerate(names)}
        # Two classes without traits stand for all unknown classes.
        known = [traits.get(name, Traits()) for name in names] + [Traits(), Traits()]
        expected = np.log(expected_speeds(known, guess))
        sides, logs, counts, packings = self._merged(seen)
        kernel = _Kernel(known)
        over = logs - expected[*sides.T]
        self.hyperparameters = dict(centre)
        if fit:
            kept = _some(sides)
            if len(kept):
                self.hyperparameters = _fitted(kernel, sides[kept], over[kept], counts[kept], packings[kept], centre)
        self._mean, self._sd, self._correlation = _predicted(
            kernel, self.hyperparameters, sides, over, counts, packings, expected
        )

    def speeds(self, one: str, other: str) -> tuple[SpeedEstimate, SpeedEstimate]:
        """Relative speeds in (0, 1] of `one` beside `other`, and of `other` beside `one`."""
        a, b = self._at(one, other)
        return self._guess(a, b), self._guess(b, a)

    def combined(self, one: str, other: str) -> SpeedEstimate:
        """Sum of both relative speeds. Above 1, the two jobs do more work side by side than in turn."""
        a, b = self._at(one, other)
        first, second = self._guess(a, b), self._guess(b, a)
        covariance = float(self._correlation[a, b]) * first.sd * second.sd
        variance = first.sd**2 + second.sd**2 + 2.0 * covariance
        return SpeedEstimate(first.mean + second.mean, math.sqrt(max(0.0, variance)))

    def _at(self, one: str, other: str) -> tuple[int, int]:
        count = len(self._places)
        a = self._places.get(one, count)
        return a, self._places.get(other, count if one == other else count + 1)

    def _guess(self, a: int, b: int) -> SpeedEstimate:
        return SpeedEstimate(float(self._mean[a, b]), float(self._sd[a, b]))

    def _merged(self, seen: Sequence[PairMeasurement]) -> tuple[Places, Array, Array, Places]:
        """Measured sides of pairs, sorted, each once for each packing that shows it.

        Returns:
            Sides (n, 2), means of the logarithms (n,), numbers of measurements (n,), and numbers of the packings (n,).
        """
        logs: dict[tuple[int, int, int], list[float]] = {}
        for each in seen:
            side = self._places[each.one], self._places[each.other], each.packing
            logs.setdefault(side, []).append(math.log(min(1.0, max(SLOWEST, each.speed))))
        sides = sorted(logs)
        shown = np.array(sides, dtype=np.intp).reshape(-1, 3)
        return (
            shown[:, :2],
            np.array([math.fsum(logs[side]) / len(logs[side]) for side in sides]),
            np.array([len(logs[side]) for side in sides], dtype=np.float64),
            shown[:, 2],
        )


def _some(sides: Places) -> Places:
    """Indices of the sides used in the fit, both sides of a pair or neither; empty if there are too few pairs."""
    pairs, of = np.unique(np.sort(sides, axis=1), axis=0, return_inverse=True)
    if len(pairs) < ENOUGH:
        return np.zeros(0, dtype=np.intp)
    kept = np.linspace(0, len(pairs) - 1, min(len(pairs), _MOST_FITTED)).round()
    return np.flatnonzero(np.isin(of.ravel(), kept))


class _Kernel:
    """Covariances of sides of pairs, and their derivatives by the hyperparameters."""

    def __init__(self, known: Sequence[Traits]) -> None:
        self.count = len(known)
        self._at_once = at_once(known)
        self._distance = distances(known)  # (n_classes, n_classes), squared distances
        family = np.array([each.family or f"\0{place}" for place, each in enumerate(known)])
        self._family = (family[:, None] == family[None]).astype(np.float64)
        self._same = np.eye(self.count)

    def covariance(self, values: Mapping[str, float], rows: Places, columns: Places) -> Array:  # (n_rows, n_columns)
        """Covariance between sides of pairs. Each row is (class that the speed is about, class of the neighbour)."""
        h, (s1, s2) = _Natural(values), self._alike(values)
        (a, b), (c, d) = rows.T, columns.T
        suffers, hurts, both = self._classes(h, s1)
        total = suffers[np.ix_(a, c)] + hurts[np.ix_(b, d)] + both[np.ix_(a, d)] + both[np.ix_(b, c)]
        total += h.together * s2[np.ix_(a, c)] * s2[np.ix_(b, d)]
        total += h.together * h.both_together * s2[np.ix_(a, d)] * s2[np.ix_(b, c)]
        total += h.pair * ((a[:, None] == c) & (b[:, None] == d))
        total += h.pair * h.both_pair * ((a[:, None] == d) & (b[:, None] == c))
        total += h.level + h.alike * np.outer(s2[a, b], s2[c, d])
        result: Array = total * np.outer(self._at_once[a, b], self._at_once[c, d])
        return result

    def variance(self, values: Mapping[str, float], rows: Places, columns: Places) -> Array:  # (n_rows,)
        """Diagonal of `covariance`, for equal numbers of rows and columns."""
        h, (s1, s2) = _Natural(values), self._alike(values)
        (a, b), (c, d) = rows.T, columns.T
        suffers, hurts, both = self._classes(h, s1)
        result: Array = suffers[a, c] + hurts[b, d] + both[a, d] + both[b, c] + h.level
        result += h.together * (s2[a, c] * s2[b, d] + h.both_together * s2[a, d] * s2[b, c])
        result += h.pair * (((a == c) & (b == d)) + h.both_pair * ((a == d) & (b == c)))
        result += h.alike * s2[a, b] * s2[c, d]
        result *= self._at_once[a, b] * self._at_once[c, d]
        return result

    def shared(self, sides: Places, packings: Places) -> Array:  # (n_sides, n_sides)
        """Covariance that the sides of a larger packing have beyond that of their pairs."""
        factor = np.where((packings[:, None] == packings) & (packings > 0), LARGER_SD**2, 0.0)
        often = self._at_once[*sides.T]
        return np.asarray(factor * np.outer(often, often))

    def slopes(self, values: Mapping[str, float], sides: Places, weights: Array) -> dict[str, float]:
        """Derivatives of sum(weights * covariance(sides, sides)) by each hyperparameter, for symmetric weights."""
        h, (s1, s2) = _Natural(values), self._alike(values)
        a, b = sides.T
        weights = weights * np.outer(self._at_once[a, b], self._at_once[a, b])
        from_a, from_b = self._same[a], self._same[b]  # (n_sides, n_classes)

        def gathered(left: Array, inner: Array, right: Array) -> Array:
            result: Array = left.T @ inner @ right
            return result

        suffers, hurts = gathered(from_a, weights, from_a), gathered(from_b, weights, from_b)
        crossed = gathered(from_a, weights, from_b)
        both = crossed + crossed.T
        smooth, own = math.sqrt(h.suffers * h.hurts), math.sqrt(h.own_suffers * h.own_hurts)
        aa, bb, ab = s2[np.ix_(a, a)], s2[np.ix_(b, b)], s2[np.ix_(a, b)]
        straight, exchanged = float(np.sum(weights * aa * bb)), float(np.sum(weights * ab * ab.T))
        same = float(np.sum(weights * (a[:, None] == a) * (b[:, None] == b)))
        turned = float(np.sum(weights * (a[:, None] == b) * (b[:, None] == a)))
        alike = s2[a, b]
        pulled = weights @ alike
        with_s1 = h.suffers * suffers + h.hurts * hurts + h.both * smooth * both
        crossed = gathered(from_a, weights * ab.T, from_b)
        with_s2 = gathered(from_a, weights * bb, from_a) + gathered(from_b, weights * aa, from_b)
        with_s2 = h.together * (with_s2 + h.both_together * (crossed + crossed.T))
        with_s2 += 2.0 * h.alike * gathered(from_a, np.diag(pulled), from_b)
        smooth_both = smooth * float(np.sum(both * s1))
        own_both = own * float(np.trace(both))
        slopes = {
            "level": h.level * float(np.sum(weights)),
            "suffers": h.suffers * float(np.sum(suffers * s1)) + 0.5 * h.both * smooth_both,
            "hurts": h.hurts * float(np.sum(hurts * s1)) + 0.5 * h.both * smooth_both,
            "own_suffers": h.own_suffers * float(np.trace(suffers)) + 0.5 * h.both * own_both,
            "own_hurts": h.own_hurts * float(np.trace(hurts)) + 0.5 * h.both * own_both,
            "both": (1.0 - h.both**2) * (smooth_both + own_both),
            "together": h.together * (straight + h.both_together * exchanged),
            "both_together": (1.0 - h.both_together**2) * h.together * exchanged,
            "alike": h.alike * float(alike @ pulled),
            "pair": h.pair * (same + h.both_pair * turned),
            "both_pair": (1.0 - h.both_pair**2) * h.pair * turned,
        }
        for number, s, pull in ((1, s1, with_s1), (2, s2, with_s2)):
            scaled = self._distance * math.exp(-2.0 * values[f"scale_{number}"])
            share = 1.0 / (1.0 + math.exp(-values[f"family_{number}"]))
            by_share = np.exp(-0.5 * scaled) * (self._family - 1.0)
            slopes[f"scale_{number}"] = float(np.sum(pull * s * scaled))
            slopes[f"family_{number}"] = share * (1.0 - share) * float(np.sum(pull * by_share))
        return slopes

    def _alike(self, values: Mapping[str, float]) -> tuple[Array, Array]:
        """Similarities s1 and s2 of all classes, (n_classes, n_classes) each."""

        def alike(number: int) -> Array:
            share = 1.0 / (1.0 + math.exp(-values[f"family_{number}"]))
            near = np.exp(-0.5 * self._distance * math.exp(-2.0 * values[f"scale_{number}"]))
            return np.asarray(near * (1.0 - share + share * self._family))

        return alike(1), alike(2)

    def _classes(self, h: _Natural, s1: Array) -> tuple[Array, Array, Array]:
        """Covariances of u, of v, and between u and v for all classes, (n_classes, n_classes) each."""
        smooth, own = math.sqrt(h.suffers * h.hurts), math.sqrt(h.own_suffers * h.own_hurts)
        return (
            h.suffers * s1 + h.own_suffers * self._same,
            h.hurts * s1 + h.own_hurts * self._same,
            h.both * (smooth * s1 + own * self._same),
        )


class _Natural:
    """Hyperparameters as variances and correlations."""

    def __init__(self, values: Mapping[str, float]) -> None:
        self.level, self.alike = math.exp(values["level"]), math.exp(values["alike"])
        self.suffers, self.hurts = math.exp(values["suffers"]), math.exp(values["hurts"])
        self.own_suffers, self.own_hurts = math.exp(values["own_suffers"]), math.exp(values["own_hurts"])
        self.together, self.pair = math.exp(values["together"]), math.exp(values["pair"])
        self.both, self.both_together = math.tanh(values["both"]), math.tanh(values["both_together"])
        self.both_pair, self.noise = math.tanh(values["both_pair"]), math.exp(values["noise"])


def _fitted(
    kernel: _Kernel, sides: Places, logs: Array, counts: Array, packings: Places, around: Mapping[str, float]
) -> dict[str, float]:
    """Hyperparameters of the highest posterior density near `around`; `around` itself if the fit fails."""
    from scipy.optimize import minimize

    names = list(around)
    centre = np.array([around[name] for name in names])
    spread = np.array([_SPREAD.get(name, _USUAL_SPREAD) for name in names])
    shared = kernel.shared(sides, packings)

    def cost(at: Array) -> tuple[float, Array]:
        values = dict(zip(names, at.tolist(), strict=True))
        noise = math.exp(values["noise"]) / counts
        covariance = kernel.covariance(values, sides, sides) + shared + np.diag(noise + _JITTER)
        factor = np.linalg.cholesky(covariance)
        inverse = np.linalg.inv(factor)
        inverse = inverse.T @ inverse
        weighted = inverse @ logs
        weights = 0.5 * (inverse - np.outer(weighted, weighted))
        slopes = kernel.slopes(values, sides, weights) | {"noise": float(np.diag(weights) @ noise)}
        off = (at - centre) / spread
        value = 0.5 * float(logs @ weighted) + float(np.log(np.diag(factor)).sum()) + 0.5 * float(off @ off)
        return value, np.array([slopes[name] for name in names]) + off / spread

    # Bounds of four standard deviations: within them every covariance is positive definite.
    bounds = list(zip(centre - 4.0 * spread, centre + 4.0 * spread, strict=True))
    try:
        found = minimize(cost, centre, jac=True, method="L-BFGS-B", bounds=bounds, options=_SEARCH).x
    except np.linalg.LinAlgError:
        return dict(around)
    return dict(zip(names, found.tolist(), strict=True))


def _usual(sides: Places, logs: Array, packings: Places, covariance: Array) -> Array:  # (n_sides,)
    """Measured effects, each within `EXTREME` of what all other packings lead to expect.

    Args:
        sides: Measured sides, (n_sides, 2).
        logs: Their effects, (n_sides,).
        packings: Number of the larger packing of each side, or 0, (n_sides,).
        covariance: Covariance of the effects, with the noise of measuring, (n_sides, n_sides).
    """
    usual = logs.copy()
    inverse = np.linalg.inv(covariance)
    weighted = inverse @ logs
    alone = packings[:, None] == 0
    shown = np.hstack([np.where(alone, np.sort(sides, axis=1), 0), packings[:, None]])
    _, of = np.unique(shown, axis=0, return_inverse=True)
    for packing in range(of.max() + 1):
        own = np.flatnonzero(of.ravel() == packing)
        left_out = np.linalg.inv(inverse[np.ix_(own, own)])  # covariance of its sides, given all others
        expected, most = logs[own] - left_out @ weighted[own], EXTREME * np.sqrt(np.diag(left_out))
        usual[own] = np.clip(logs[own], expected - most, expected + most)
    return usual


def _predicted(
    kernel: _Kernel,
    values: Mapping[str, float],
    sides: Places,
    logs: Array,
    counts: Array,
    packings: Places,
    expected: Array,
) -> tuple[Array, Array, Array]:
    """Mean and standard deviation of all speeds, and the correlation of the two sides: (n_classes, n_classes) each.

    Args:
        kernel: Covariances of sides of pairs.
        values: Hyperparameters.
        sides: Measured sides, (n_sides, 2).
        logs: Logarithms of the measured speeds minus the expected ones, (n_sides,).
        counts: Number of measurements of each side, (n_sides,).
        packings: Number of the larger packing of each side, or 0, (n_sides,).
        expected: Logarithms of the expected speeds before any measurement, (n_classes, n_classes).
    """
    from scipy.linalg import solve_triangular

    count = kernel.count
    grid = np.stack(np.meshgrid(np.arange(count), np.arange(count), indexing="ij"), axis=-1).reshape(-1, 2)
    turned = grid[:, ::-1]
    usual = logs
    mean, variance = expected.ravel().copy(), kernel.variance(values, grid, grid)
    between = kernel.variance(values, grid, turned)
    if len(sides):
        covariance = kernel.covariance(values, sides, sides) + kernel.shared(sides, packings)
        covariance += np.diag(math.exp(values["noise"]) / counts + _JITTER)
        usual = _usual(sides, logs, packings, covariance)
        usual = np.minimum(usual, np.maximum(logs, -expected[*sides.T]))  # none is expected to be faster than alone
        factor = np.linalg.cholesky(covariance)
        known = solve_triangular(factor, kernel.covariance(values, sides, grid), lower=True)  # (n_sides, n_pairs)
        mean += known.T @ solve_triangular(factor, usual, lower=True)
        variance = variance - np.sum(known**2, axis=0)
        other = known.reshape(-1, count, count).transpose(0, 2, 1).reshape(known.shape)
        between = between - np.sum(known * other, axis=0)
    spread = np.sqrt(np.maximum(variance, _JITTER))
    first, second = _at_most_one(mean, spread)
    across = spread.reshape(count, count)
    correlation = between.reshape(count, count) / (across * across.T)
    deviation = np.sqrt(np.maximum(second - first**2, 0.0))
    speeds, errors = first.reshape(count, count), deviation.reshape(count, count)
    pairs, rest = sides[packings == 0].T, np.exp(logs - usual)[packings == 0]
    speeds[*pairs] = np.minimum(1.0, speeds[*pairs] * rest)  # the rest is of its pair alone, or of its packing
    errors[*pairs] *= rest
    return speeds, errors, np.clip(correlation, -1.0, 1.0)


def _at_most_one(mean: Array, spread: Array) -> tuple[Array, Array]:
    """Expectations of s and s^2 for s = min(1, exp(y)), with y normal."""
    from scipy.special import log_ndtr, ndtr

    above = ndtr(mean / spread)

    def moment(power: int) -> Array:
        shift = power * spread**2
        # Logarithms are added, because the first factor may be huge while the second one is tiny.
        below = np.exp(power * (mean + 0.5 * shift) + log_ndtr(-(mean + shift) / spread))
        return np.asarray(below + above)

    return np.clip(moment(1), 1e-9, 1.0), np.clip(moment(2), 1e-18, 1.0)
