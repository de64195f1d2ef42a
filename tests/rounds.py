"""Number of rounds of tests that repeat something."""

from __future__ import annotations

import datetime

from hypothesis import settings


def is_nightly() -> bool:
    """Whether the Hypothesis profile of that name is used, as `scripts/nightly` does."""
    return settings.get_current_profile_name() == "nightly"


def rounds(usual: int, nightly: int) -> int:
    """Number of rounds: `nightly` under the Hypothesis profile of that name, `usual` otherwise.

    Call this at collection of the test, not at import of its module by another one.
    """
    return nightly if is_nightly() else usual


def night() -> int:
    """Number of this night, with which rounds differ from night to night; 0 by day.

    Call this in the test: two workers may collect it before and after midnight.
    """
    return datetime.datetime.now(datetime.UTC).date().toordinal() if is_nightly() else 0
