"""Learns how packings respond to power limits: measurements of a run with a power budget are kept for the next one.

They are in the files of the tuned packings (`profiling/tuning_store.py`), as a result without a best setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from ecoshare.common.utc_text import utc_text
from ecoshare.errors import UnfitEnvironment
from ecoshare.profiling.tuning_store import KnobRange, MeasurementRecord, TunedDevice, TuningResult, TuningStore
from ecoshare.values.device import DeviceInfo
from ecoshare.values.measurement import Measurement, MeasurementStatus
from ecoshare.values.packing import Packing
from ecoshare.values.power_response import MOST_MEASUREMENTS, NEAR, POWER_LIMIT, KnownResponse, LimitMeasurement

if TYPE_CHECKING:  # a plan needs neither
    from ecoshare.record.packing_timeline import PackingPeriod
    from ecoshare.record.run_history import RunHistory

OBJECTIVE, TUNING_LIMIT = "power budget", 1.0
"""Objective and tuning limit under which the store keeps such a result: no search has them."""


def known_responses(
    classes: set[str], device: DeviceInfo, store: TuningStore, notes: list[str]
) -> tuple[KnownResponse, ...]:
    """Measurements under power limits that earlier runs made of packings of these classes.

    Args:
        classes: Job classes of the run.
        device: A device of the run.
        store: Tuning results.
        notes: Notes for the user; those of the store are added.
    """
    found = store.of(classes, device.described, OBJECTIVE)
    notes += [each for each in store.notes if each not in notes]
    return tuple(KnownResponse(each.packing, tuple(map(_measurement, each.trials))) for each in found)


def teach_limits(devices: Sequence[DeviceInfo], history: RunHistory, store: TuningStore) -> list[str]:
    """Keep what a run measured under power limits; return notes for the user.

    A measurement replaces earlier ones of its packing under nearly the same limit.

    Args:
        devices: Devices of the run, all of one model.
        history: History of the run.
        store: Tuning results.
    """
    by_name = {device.name: device for device in devices}
    found: dict[Packing, list[tuple[PackingPeriod, Measurement]]] = {}
    for stretch in history.packings().stretches:
        for _, measured in stretch.measurements:
            is_whole = set(measured.times_s) == set(stretch.jobs) and bool(measured.power_w)
            if measured.status is MeasurementStatus.MEASURED and is_whole and stretch.device in by_name:
                found.setdefault(stretch.packing, []).append((stretch, measured))
    try:
        for packing, own in found.items():
            device = by_name[own[0][0].device]
            limits_w = history.devices[device.name].power_limits_w
            if limits_w:
                store.save(_result(packing, own, device, limits_w, store))
    except UnfitEnvironment as error:
        return [*store.notes, f"what power limits did is not kept: {error}"]
    return store.notes


def _result(
    packing: Packing,
    own: Sequence[tuple[PackingPeriod, Measurement]],
    device: DeviceInfo,
    limits_w: Sequence[float],
    store: TuningStore,
) -> TuningResult:
    """Measurements of a packing, the newest first, with those of earlier runs under other limits."""
    before = store.find(packing, device.described, OBJECTIVE, TUNING_LIMIT)
    records = [_record(stretch.classes, measured, limits_w[-1]) for stretch, measured in reversed(own)]
    new_w = [_limit_w(each) for each in records]
    for each in () if before is None else before.trials:
        if all(abs(limit_w / _limit_w(each) - 1.0) > NEAR for limit_w in new_w):
            records.append(each)
    kept = records[:MOST_MEASUREMENTS]
    return TuningResult(
        objective=OBJECTIVE,
        tuning_limit=TUNING_LIMIT,
        knobs=(KnobRange(name=POWER_LIMIT, unit="W", count=len(limits_w), lowest=limits_w[0], highest=limits_w[-1]),),
        packing=packing,
        device=TunedDevice(model=device.described, uuid=device.uuid),
        default={POWER_LIMIT: limits_w[-1]},
        best=None,
        trials=tuple(each.model_copy(update={"number": number}) for number, each in enumerate(kept, start=1)),
        saved_against_default=None,
        best_static=None,
        violations=0,
        search_energy_j=None,
        made_utc=utc_text(),
        classes={name: name for lane in packing for name in lane},
    )


def _record(classes: Mapping[str, str], found: Measurement, default_w: float) -> MeasurementRecord:
    """A measurement for the store. Jobs are named after their classes, since other runs have other jobs."""
    times: dict[str, list[float]] = {}
    for job, time_s in found.times_s.items():
        times.setdefault(classes[job], []).append(time_s)
    return MeasurementRecord(
        number=1,
        requested={POWER_LIMIT: float(dict(found.setting).get(POWER_LIMIT, default_w))},
        status=found.status,
        power_w=found.power_w,
        joules=found.joules,
        duration_s=found.duration_s,
        times={name: fmean(each) for name, each in times.items()},
        energy=None,
        interference={},
        feasible=None,
        best=False,
    )


def _measurement(record: MeasurementRecord) -> LimitMeasurement:
    assert record.power_w is not None, "only measurements with watts are kept"
    return LimitMeasurement(_limit_w(record), record.power_w, tuple(sorted(record.times.items())))


def _limit_w(record: MeasurementRecord) -> float:
    return float(record.requested[POWER_LIMIT])
