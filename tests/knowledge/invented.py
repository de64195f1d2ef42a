"""Invented packings: power and times from a formula, and tables of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ecoshare.base.measurement import Measurement, MeasurementStatus
from ecoshare.knowledge.advisers.setting_search import PackedJob
from tuner import Knob, Role, Setting, Space

CLOCKS = tuple(float(mhz) for mhz in range(600, 1500, 100))
SPACE = Space.product(Knob("clock", CLOCKS, Role.CORE_CLOCK))
DEFAULT = {"clock": 1400.0}


def measured(
    power_w: float | None,
    times_s: Mapping[str, float],
    status: MeasurementStatus = MeasurementStatus.MEASURED,
    rates: Mapping[str, float] | None = None,
) -> Measurement:
    """Measurement with these numbers, at a setting that the search knows."""
    return Measurement((), status, power_w, times_s=dict(times_s), rates=dict(rates or {}))


@dataclass(frozen=True)
class Device:
    """Device on which the clock changes a part of the time of each job.

    Attributes:
        compute: Part of the time that the clock changes, by job.
        idle_w: Power (W) that no clock changes.
        dynamic_w: Power (W) beyond idle at the highest clock.
    """

    compute: Mapping[str, float]
    idle_w: float = 60.0
    dynamic_w: float = 190.0

    def measure(self, setting: Setting) -> Measurement:
        clock = setting["clock"]
        assert isinstance(clock, float)
        relative = clock / CLOCKS[-1]
        times = {name: 0.1 * (part / relative + 1.0 - part) for name, part in self.compute.items()}
        return measured(self.idle_w + self.dynamic_w * relative**2.5, times)

    def jobs(self) -> list[PackedJob]:
        power_w = self.measure(DEFAULT).power_w
        assert power_w is not None
        return [PackedJob(name, power_w / len(self.compute)) for name in self.compute]


COLUMNS = "power_limit=limit:W,work_size=batch,time=epoch_s,power=watts"


def write_table(path: Path, networks: Mapping[str, float] | None = None) -> Path:
    """Power limits 100 to 250 W by batch sizes 32 to 256, where the largest limit has no row for the smallest batch.

    Args:
        networks: Part of the time that power changes, by network; the power that it would draw rises with the batch.
    """
    lines = ["network,batch,limit,epoch_s,watts"]
    for name, part in (networks or {"resnet": 0.5}).items():
        for batch in (32, 64, 128, 256):
            for limit in (100, 125, 150, 175, 200, 225, 250):
                if (batch, limit) == (32, 250):
                    continue
                wanted_w = 150.0 + 30.0 * part * (batch / 64) ** 0.5
                clock = min(1.0, (limit / wanted_w) ** 0.6)
                epoch_s = 100.0 * (part / clock + 1.0 - part) * (1.0 + 8.0 / batch)
                lines.append(f"{name},{batch},{limit},{epoch_s:.4f},{min(limit, wanted_w):.3f}")
    path.write_text("\n".join(lines) + "\n")
    return path
