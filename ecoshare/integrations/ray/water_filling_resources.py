"""`water_filling` divides devices among Tune's trials by Fluid's rule, again at each result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ray
from ray.tune import PlacementGroupFactory
from ray.tune.experiment import Trial
from ray.tune.schedulers import ResourceChangingScheduler

from ecoshare.core.policies.fluid import widths


@dataclass
class WaterFilling:
    """A `resources_allocation_function`; `water_filling` makes it.

    Attributes:
        metric, mode: Set by `ResourceChangingScheduler`; not used here.
    """

    results: int
    most: int
    per_device: int
    resource: str
    devices: int | None
    metric: str | None = None
    mode: str | None = None
    _spent: dict[str, tuple[float, int]] = field(default_factory=dict)

    def __call__(
        self, controller: Any, trial: Trial, result: dict[str, Any], scheduler: ResourceChangingScheduler
    ) -> PlacementGroupFactory | None:
        """Resources that the trial gets from now on; None for no change."""
        base = scheduler.base_trial_resources
        devices = self.devices or int(ray.cluster_resources().get(self.resource, 0))
        if base is None or devices < 1:
            return None
        self._count(trial, result)
        group = sorted(controller.get_live_trials(), key=lambda each: str(each.trial_id))
        known = [self._left(each) for each in group]
        told = [left for left in known if left is not None]
        mean = sum(told) / len(told)
        poured = widths([mean if left is None else left for left in known], devices, 1 / self.per_device, self.most)
        head, *others = base.bundles
        head = {**head, self.resource: poured[group.index(trial)]}
        return PlacementGroupFactory([head, *others], strategy=base.strategy)

    def _count(self, trial: Trial, result: dict[str, Any]) -> None:
        """Add the time of a result times the devices that the trial had."""
        spent, done = self._spent.get(trial.trial_id, (0.0, 0))
        width = trial.placement_group_factory.required_resources.get(self.resource, 0.0) or 1.0
        self._spent[trial.trial_id] = spent + width * result["time_this_iter_s"], done + 1

    def _left(self, trial: Trial) -> float | None:
        """Time (s) that a trial still needs on one device; None before its first report."""
        if trial.trial_id not in self._spent:
            return None
        spent, counted = self._spent[trial.trial_id]
        done: int = (trial.last_result or {}).get("training_iteration", counted)
        return spent / counted * max(1, self.results - done)


def water_filling(
    results: int, *, most: int = 1, per_device: int = 2, resource: str = "GPU", devices: int | None = None
) -> WaterFilling:
    """Return a `resources_allocation_function` that divides devices by the time that each trial still needs.

    The time that a trial still needs is the mean time of its results so far, times the devices that it had, times the
    results that are left. A trial without results counts as the mean of the trials with results. Widths change
    when a trial ends, pauses or is stopped, at the next result of each other trial. Tune saves a trial and starts it
    again to change its width, so a function has to report checkpoints.

    Args:
        results: Number of results that a trial reports if it is not stopped early.
        most: Most devices that one trial can use.
        per_device: Most trials that may share a device; the smallest width is 1 / per_device.
        resource: Ray's name of the resource that counts as a device: `GPU`, `CPU`, or a custom resource.
        devices: Number of devices for all trials together; by default all devices of Ray's cluster.

    Raises:
        TypeError: A number is not whole.
        ValueError: A number is not positive.
    """
    numbers = {"results": results, "most": most, "per_device": per_device}
    if devices is not None:
        numbers["devices"] = devices
    for name, value in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"water_filling({name}={value!r}): expected a whole number")
        if value < 1:
            raise ValueError(f"water_filling({name}={value!r}): expected at least 1")
    return WaterFilling(results, most, per_device, resource, devices)
