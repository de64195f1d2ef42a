"""Ray Tune with real memory and turns instead of fractions of a GPU (Liaw et al., "Tune", 2018; https://ray.io).

::

    from ray import tune
    from ecoshare.integrations.ray import share

    tune.Tuner(share(train), param_space=...).fit()

`share` lets trials take turns on one device, as many as fit in its memory; `water_filling` says how many devices each
trial of a group gets, for Tune's `ResourceChangingScheduler`.
"""

from __future__ import annotations

try:
    import ray.tune  # noqa: F401
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] == "ecoshare":
        raise
    raise ModuleNotFoundError(f"Ray Tune is not installed ({error}): pip install 'ecoshare[ray]'") from None
except KeyError as error:  # docs/decisions/0019
    hint = "pip install 'ray[tune]<2.56'"
    raise ImportError(f"this version of Ray does not load beside amdsmi ({error} is missing): {hint}") from None

from ecoshare.integrations.ray.sharing import share
from ecoshare.integrations.ray.water_filling_resources import water_filling

__all__ = ["share", "water_filling"]
