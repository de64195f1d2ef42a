"""The part of a profile that a service has: times and joules of its answers by batch size. Pure, as `profile_making`.

The meter is sampled once a second. The samples inside the time of a batch size give the power at this size:

::

    samples       │     │     │     │     │     │
    batches of 4     ├──────────────────┤
    power                 ├───────────┤
"""

from __future__ import annotations

from collections.abc import Sequence

from ecoshare.devices.meter import MeterFault
from ecoshare.profiling.profile import BatchAnswers
from ecoshare.record.energy_account import spent
from ecoshare.record.samples import Line, Sample, Session
from ecoshare.serving.batch_measurement import BatchTimes
from ecoshare.values.joules import MEASURED, Energy


def batch_answers(measured: Sequence[BatchTimes], lines: Sequence[Line]) -> tuple[BatchAnswers, ...]:
    """Answers of a service by batch size.

    Args:
        measured: Times that the service has measured.
        lines: Session and samples of its device, in order.
    """
    session = next((line for line in reversed(lines) if isinstance(line, Session)), None)
    samples = [line for line in lines if isinstance(line, Sample)]
    return tuple(_answers(times, samples, session) for times in measured)


def _answers(times: BatchTimes, samples: Sequence[Sample], session: Session | None) -> BatchAnswers:
    inside = [sample for sample in samples if times.from_s <= sample.at_s <= times.to_s]
    per_request_j = error = None
    if session is not None and (energy := _spent(inside, session)) is not None:
        power_w = energy.value_j / (inside[-1].at_s - inside[0].at_s)
        per_request_j = power_w * times.mean_s / times.size
        error = energy.standard_error_j / energy.value_j if session.source == MEASURED else None
    return BatchAnswers(
        size=times.size,
        count=times.count,
        mean_s=times.mean_s,
        standard_error_s=times.standard_error_s,
        median_s=times.median_s,
        p95_s=times.p95_s,
        p99_s=times.p99_s,
        per_request_j=per_request_j,
        energy_error=error,
    )


def _spent(samples: Sequence[Sample], session: Session) -> Energy | None:
    """Energy between the first and the last sample; None if it is unknown."""
    if len(samples) < 2:
        return None
    try:
        energy = spent(samples[0], samples[-1], session)
    except MeterFault:
        return None
    return energy if energy.value_j > 0.0 else None
