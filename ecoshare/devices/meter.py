"""Protocol of energy meters: one number that grows, and how far it can be trusted.

::

    counter   ┐         ┌─────────┐         ┌──     a meter shows the value of its last update: within a period
              └─────────┘         └─────────┘       of `period_s` nothing is known
    reads       ▲                     ▲
                └─ an interval ───────┘             shorter than a period: no joules; else ± one update at each end
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Protocol

from ecoshare.base.joules import MEASURED, MODELLED, Counter, Energy, counted
from ecoshare.base.plural import counted as worded
from ecoshare.errors import UnfitEnvironment


class MeterFault(UnfitEnvironment):
    """A meter gave no number, or an impossible one. The joules of that interval are unknown."""


@dataclass(frozen=True, slots=True)
class MeterInfo:
    """Description of a meter.

    Attributes:
        name: Short name, such as `nvml` or `rapl`.
        source: `measured` or `modelled`.
        scope: Device that spends the joules: `gpu` or `cpu`.
        about: One line for the user.
        period_s: Time (s) between updates of the counter; 0 if every reading is new.
        looks: Part of each period in which the counter looks; see `Counter`.
    """

    name: str
    source: str
    scope: str
    about: str
    period_s: float
    looks: float = 1.0


@dataclass(frozen=True, slots=True)
class Reading:
    """State of a meter at one moment.

    Attributes:
        at_s: Time of the reading (s, monotonic clock).
        energy_j: Joules since an origin that the meter chooses; never less than in the reading before.
    """

    at_s: float
    energy_j: float


class Meter(Protocol):
    """Counts the joules of a device."""

    @property
    def info(self) -> MeterInfo:
        """Description of this meter."""
        ...

    def read(self) -> Reading:
        """Joules so far.

        Raises:
            MeterFault: The meter gives no number. It may answer again later.
        """
        ...


def energy_between(first: Reading, last: Reading, counter: Counter) -> Energy:
    """Joules spent between two readings of a counter; see `counted` for their error.

    Raises:
        MeterFault: The interval is shorter than the counter's period, or the counter went back.
    """
    wall_s = last.at_s - first.at_s
    value_j = last.energy_j - first.energy_j
    if wall_s <= counter.period_s:
        raise MeterFault(
            f"{wall_s:.3f} s is shorter than the {counter.period_s:.3f} s between updates of the energy counter"
        )
    if value_j < 0:
        raise MeterFault(f"the energy counter went back by {-value_j:.1f} J")
    return counted(value_j, wall_s, counter)


_LOOK_EVERY_S = 0.004
_UPDATES = 5
_LONGEST_S = 1.5
"""How a counter is watched: time (s) between looks, number of updates, and time (s) until it counts as stopped."""


class CounterMeter:
    """Counts the joules of one GPU and of everything on its board.

    zeus knows which boards have a counter, and gives the driver's errors types. ecoshare does not use the windows of
    zeus: differences of one growing number have no gaps between them. ecoshare does not use the GPU list of zeus
    either: zeus takes `CUDA_VISIBLE_DEVICES` for a list of numbers, and ecoshare finds GPUs by UUID.
    """

    def __init__(self, name: str, energy_j: Callable[[], float], looks: float = 1.0) -> None:
        """Prepare a meter. Call `open` before `read`.

        Args:
            name: Short name of the meter, such as `nvml`.
            energy_j: Returns the counter (J). It raises `UnfitEnvironment` if there is no counter or no answer.
            looks: Part of each of its periods in which the counter looks at the power.
        """
        self._name, self._energy_j, self._looks = name, energy_j, looks
        self._last_j = 0.0
        self._period_s = 0.0

    @property
    def info(self) -> MeterInfo:
        """Description of this meter."""
        about = f"the GPU's energy counter, updated every {1000 * self._period_s:.0f} ms"
        if self._looks < 1.0:
            about += f", which looks {self._looks:.0%} of the time"
        return MeterInfo(self._name, MEASURED, "gpu", about, self._period_s, self._looks)

    def open(self) -> CounterMeter:
        """Find the counter and measure its update period: the median over a few updates.

        Raises:
            MeterFault: This GPU has no counter, or the counter stands still for 1.5 s.
            UnfitEnvironment: The driver fails.
        """
        self._period_s = self._watch()
        self._last_j = 0.0
        return self

    def read(self) -> Reading:
        """Joules since the driver was loaded.

        Raises:
            MeterFault: The GPU does not answer, or its counter went back.
        """
        before_s = time.monotonic()
        energy_j = self._joules()
        at_s = (before_s + time.monotonic()) / 2
        if energy_j < self._last_j:
            back_j, self._last_j = self._last_j - energy_j, energy_j
            raise MeterFault(f"the GPU's energy counter went back by {back_j:.1f} J: the driver was reloaded, say")
        self._last_j = energy_j
        return Reading(at_s, energy_j)

    def _joules(self) -> float:
        try:
            return self._energy_j()
        except UnfitEnvironment as error:
            raise MeterFault(str(error), error.hint) from error

    def _watch(self) -> float:
        """Median time (s) between updates of the counter, found by reading it much more often."""
        began_s = time.monotonic()
        value_j = self._joules()
        moved_s: list[float] = []
        while len(moved_s) < _UPDATES:
            time.sleep(_LOOK_EVERY_S)
            now_s, now_j = time.monotonic(), self._joules()
            if now_j != value_j:
                value_j = now_j
                moved_s.append(now_s)
            elif now_s - began_s > _LONGEST_S and len(moved_s) < 2:
                raise MeterFault(f"the GPU's energy counter stood still for {_LONGEST_S} s")
        return median(later - earlier for earlier, later in itertools.pairwise(moved_s))


IDLE_W_PER_CORE = 0.74
BUSY_W_PER_CORE = 3.5


@dataclass(frozen=True, slots=True)
class PowerModel:
    """Watts of a device at rest and at full load.

    A model is not a measurement. At best, modelled joules compare runs on one machine. The word *modelled* stands
    beside them wherever they appear.

    Processors: watts of a virtual core at rest and at full load. Both are averages over the machines of one large
    provider, from Cloud Carbon Footprint, "Methodology", section "Compute" (AWS: 0.74 W and 3.5 W), after Etsy's "Cloud
    Jewels". GPUs: the idle power that the driver showed when the run began, and the board's default power limit as full
    load.

    Attributes:
        idle_w: Power (W) of the whole device at rest.
        busy_w: Power (W) of the whole device at full load.
        full_load: Busy seconds per second at full load: the number of cores, or 1 for a GPU.
        source: Origin of the watts, in words.
    """

    idle_w: float
    busy_w: float
    full_load: float
    source: str

    def idle_j(self, wall_s: float) -> float:
        """Joules that the idle device spends in `wall_s` seconds."""
        return self.idle_w * wall_s

    def active_j(self, busy_s: float) -> float:
        """Joules that work adds to idle power; `busy_s` is in core-seconds, or in seconds of a GPU held."""
        return busy_s * (self.busy_w - self.idle_w) / self.full_load


def models_as_json(models: Mapping[str, PowerModel | None]) -> dict[str, dict[str, Any] | None]:
    """Power models by the names of their devices, as JSON has them."""
    return {name: asdict(model) if model is not None else None for name, model in models.items()}


def processors_power_model(cores: int) -> PowerModel:
    """Power model of `cores` virtual cores."""
    return PowerModel(
        idle_w=IDLE_W_PER_CORE * cores,
        busy_w=BUSY_W_PER_CORE * cores,
        full_load=float(cores),
        source=f"{worded(cores, 'core')} of {IDLE_W_PER_CORE} W at rest and {BUSY_W_PER_CORE} W busy "
        "(Cloud Carbon Footprint)",
    )


def gpu_power_model(idle_w: float, limit_w: float) -> PowerModel:
    """Power model of a GPU: `idle_w` at rest, and the power limit `limit_w` at full load."""
    source = f"{idle_w:.0f} W at rest (driver), {limit_w:.0f} W busy (default power limit)"
    return PowerModel(idle_w, limit_w, 1.0, source)


class ModelMeter:
    """Computes the joules of a device from a power model and the busy time of the run's jobs."""

    def __init__(self, model: PowerModel, scope: str, busy_s: Callable[[], float], why: str) -> None:
        """Make a meter that counts from now on.

        Args:
            model: Power model of the device.
            scope: `gpu` or `cpu`.
            busy_s: Returns the jobs' busy time so far: core-seconds, or seconds of a GPU held. It never decreases.
            why: Reason why no real meter is read; it becomes part of `info`.
        """
        self._model, self._scope, self._busy_s, self._why = model, scope, busy_s, why
        self._began_s = time.monotonic()

    @property
    def info(self) -> MeterInfo:
        """Description of this meter."""
        return MeterInfo("model", MODELLED, self._scope, f"{self._model.source}; {self._why}", 0.0)

    def read(self) -> Reading:
        """Joules since this meter was made: idle power over that time, plus the energy that the jobs' work adds."""
        at_s = time.monotonic()
        return Reading(at_s, self._model.idle_j(at_s - self._began_s) + self._model.active_j(self._busy_s()))
