"""How many GPUs each trial of a group gets: as water finds its level.

::

    4 GPUs, two trials to a GPU at most          hours   of 4 GPUs   width
      ████████████████  a                          16       2.3        2
      ███████  b                                    7       1.0        1
      ███  c                                        3       0.4        1/2
      ██  d                                         2       0.3        1/2

One rule says who gets several GPUs and who shares one: a trial gets the part of all GPUs that its length is of all
lengths, so that all end together, but whole GPUs, or the smallest share of one. Source: Yu et al., "Fluid:
Resource-aware Hyperparameter Tuning Engine", MLSys 2021, in which `hours` are h, `gpus` n, `share` 1/c and `most` d.

Where the speed of a trial is linear in its width, from `share` to `most`, and `share` is 1/2 or 1, trials that start
longest first, each when there is room for its width, end within twice the shortest time possible. For A the mean hours
of a GPU, and x the hours of a trial over A:

1. A trial of x >= 1 starts at once, since floor(x) sums up to no more than all GPUs. It takes x / floor(x) A < 2 A, or,
   where it is as wide as it can be, no longer than in any other way.
2. One of x < 1 that starts at once takes 2 x A < 2 A. If it has to wait, as many trials as there are places are at
   least as long, so that x < 1/2; all GPUs are busy until it starts, which is by A at the latest; it ends by 2 A.

With a smaller share, the second is wrong: two trials of x = 0.9 on two GPUs would take 0.9 / share A. There a trial
must have what its GPU does for nobody else, as in the turns of a lane.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_NEARLY = 1e-9
"""Of a GPU: a part of 0.9999999999 is one, but for rounding."""


def widths(hours: Sequence[float], gpus: int, share: float, most: int | Sequence[int]) -> list[float]:
    """GPUs of each trial: a whole number, or `share`, which stands for one of the places on a GPU.

    Args:
        hours: That each needs still, alone on one GPU; any unit.
        gpus: Of all trials together.
        share: The smallest part of a GPU that a trial can have: 1/2 where two may share one.
        most: GPUs that a trial can use, or that each of them can.

    Raises:
        ValueError: There is no GPU, or a number is out of its range.
    """
    largest = [most] * len(hours) if isinstance(most, int) else list(most)
    if gpus < 1:
        raise ValueError(f"{gpus} GPUs: expected at least 1")
    if not 0.0 < share <= 1.0:
        raise ValueError(f"a smallest share of {share:g}: expected more than 0, and at most 1")
    if len(largest) != len(hours):
        raise ValueError(f"largest widths of {len(largest)} trials, and hours of {len(hours)}")
    for each in hours:
        if not 0.0 <= each < math.inf:
            raise ValueError(f"a trial of {each:g} hours: expected a number from 0")
    for each in largest:
        if each < 1:
            raise ValueError(f"a largest width of {each}: expected at least 1")
    total = math.fsum(hours)
    parts = [gpus * (each / total if total > 0.0 else 1.0 / len(hours)) for each in hours]
    return [min(max(math.floor(part + _NEARLY), share), wide) for part, wide in zip(parts, largest, strict=True)]


def poured(hours: Sequence[float], gpus: int, share: float, most: int | Sequence[int]) -> list[float]:
    """The same, and what is left of the GPUs goes to those that would end last, one GPU after the other.

    The rule rounds down: five equal trials on eight GPUs would have one each, and three of the GPUs nobody.
    """
    wide = widths(hours, gpus, share, most)
    largest = [most] * len(hours) if isinstance(most, int) else most
    narrow = [place for place, each in enumerate(wide) if each < 1.0]
    left = gpus - int(sum(each for each in wide if each >= 1.0)) - len(narrow)
    if left < 0:
        return wide
    for place in narrow:  # each is alone on its GPU
        wide[place] = 1.0
    for _ in range(left):
        able = [place for place, each in enumerate(wide) if each < largest[place] and hours[place] > 0.0]
        if not able:
            break
        wide[max(able, key=lambda place: hours[place] / wide[place])] += 1.0
    return wide
