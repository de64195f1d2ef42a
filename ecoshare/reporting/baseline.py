"""What the work of a run would have taken otherwise, and what searching has cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ecoshare.core.events import Packing, Setting
from ecoshare.core.tuning import DEFAULT
from ecoshare.measure.energy import Account
from ecoshare.measure.profile import Profile
from ecoshare.reporting.savings import expected_scales, measured_scales, ratios
from ecoshare.reporting.stretches import Course, Stretch
from ecoshare.reporting.windows import KNOWN, all_spent_j, within

PREDICTED = "predicted"

Span = tuple[float, float]


def search_cost_j(course: Course, account: Account, end_s: float) -> float | None:
    """What was spent at settings that were tried and not kept, beyond what the same work takes at the default.

    Zero where none was tried, null where of none it is known.
    """
    tried = {key: parts for key, parts in _at_settings(course, end_s).items() if course.kept.get(key[0]) != key[1]}
    if not tried:
        return 0.0
    found = ratios(course)
    known = []
    for key, parts in tried.items():
        ratio, value_j = found.get(key), all_spent_j(account, [span for _, span in parts])
        if ratio is not None and value_j is not None:
            known.append(max(0.0, value_j * (1.0 - 1.0 / ratio)))
    return math.fsum(known) if known else None


def baseline(
    jobs: Sequence[Mapping[str, Any]],
    profiles: Mapping[str, Profile],
    course: Course,
    account: Account,
    end_s: float,
) -> dict[str, Any]:
    """What the same work would have taken otherwise, by what is known of it: each job alone at the default setting, one
    after the other; and packed as it was, but at the default setting.

    Null where it is not known. Of jobs alone the time until their first iteration is left out, so it is at least this.

    Args:
        jobs: Of the summary.
    """
    worked = [job for job in jobs if job["attempts"]]
    energies = [_alone_j(job, profiles.get(job["class"]), account) for job in worked]
    known = [each for each in energies if each is not None]
    return {
        "source": PREDICTED,
        "exclusive_energy_j": math.fsum(known) if worked and len(known) == len(worked) else None,
        "exclusive_makespan_s": _one_after_the_other_s(worked, profiles),
        "packed_default_energy_j": _at_default_j(course, account, end_s),
    }


def _alone_j(job: Mapping[str, Any], profile: Profile | None, account: Account) -> float | None:
    """Joules of a job's iterations alone; None where they are not of the kind that the run's are."""
    if profile is None or profile.energy is None or account.session is None:
        return None
    own, of_run = profile.energy, account.session
    if (own.source, own.scope) != (of_run.source, of_run.scope):
        return None
    return _of_both(job, own.per_iteration_j, own.per_eval_iteration_j)


def _alone_s(job: Mapping[str, Any], profile: Profile | None) -> float | None:
    if profile is None:
        return None
    times = [None if each is None else each.mean_s for each in (profile.train, profile.eval)]
    return _of_both(job, *times)


def _of_both(job: Mapping[str, Any], of_training: float | None, of_eval: float | None) -> float | None:
    """Over all iterations; None where one of a kind that was done is not known, or none was seen."""
    kinds = [(job["iterations"], of_training), (job["eval_iterations"], of_eval)]
    done = [(count, value) for count, value in kinds if count]
    known = [count * value for count, value in done if value is not None]
    return math.fsum(known) if done and len(known) == len(done) else None


def _one_after_the_other_s(jobs: Iterable[Mapping[str, Any]], profiles: Mapping[str, Profile]) -> float | None:
    """From the first arrival to the last finish, in the order of arrival."""
    now_s = first_s = None
    for job in sorted(jobs, key=lambda job: job["arrival_s"] or 0.0):
        work_s, arrival_s = _alone_s(job, profiles.get(job["class"])), job["arrival_s"]
        if work_s is None or arrival_s is None:
            return None
        first_s = arrival_s if first_s is None else first_s
        now_s = max(now_s or 0.0, arrival_s) + work_s
    return None if now_s is None or first_s is None else now_s - first_s


def _at_default_j(course: Course, account: Account, end_s: float) -> float | None:
    """What was spent, with the time at other settings counted back: by E where it was measured, else by what the same
    iterations take at the default, as it was measured or foreseen.

    A little time of which neither is known (a packing that was just leaving its setting) counts as it was.
    """
    if account.energy is None or course.differs_s is not None:
        return None
    total_j, unknown_j, changed_j = account.energy.value_j, 0.0, 0.0
    found, scales = ratios(course), expected_scales(course) | measured_scales(course)
    for (packing, setting), parts in _at_settings(course, end_s).items():
        value_j, ratio = all_spent_j(account, [span for _, span in parts]), found.get((packing, setting))
        if value_j is None:
            return None
        scale = scales.get(packing)
        if ratio is not None:
            changed_j += value_j * (1.0 / ratio - 1.0)
        elif scale is not None:
            work = math.fsum(scale.work(stretch.classes, _done(account, *span)) for stretch, span in parts)
            changed_j += work * scale.default - value_j
        else:
            unknown_j += value_j
    return total_j + changed_j if unknown_j <= (1.0 - KNOWN) * total_j else None


def _done(account: Account, from_s: float, to_s: float) -> dict[str, float]:
    """By job, iterations of both kinds in a time; intervals at its ends count in part."""
    done: dict[str, float] = {}
    for each, part in within(account, from_s, to_s):
        for job, count in each.iterations.items():
            done[job] = done.get(job, 0.0) + part * count
    return done


def _at_settings(course: Course, end_s: float) -> dict[tuple[Packing, Setting], list[tuple[Stretch, Span]]]:
    """The times that each packing ran at each setting other than the default."""
    found: dict[tuple[Packing, Setting], list[tuple[Stretch, Span]]] = {}
    for stretch in course.stretches:
        for setting, from_s, to_s in stretch.parts(end_s):
            if setting != DEFAULT and to_s > from_s:
                found.setdefault((stretch.packing, setting), []).append((stretch, (from_s, to_s)))
    return found
