"""Number of rounds of repeating tests, and the mark for tests that run at night only."""

from __future__ import annotations

import pytest
from hypothesis import settings


def is_nightly() -> bool:
    """Whether the Hypothesis profile of that name is used."""
    return settings.get_current_profile_name() == "nightly"


def rounds(usual: int, nightly: int) -> int:
    """Number of rounds: `nightly` under the Hypothesis profile of that name, `usual` otherwise.

    Call this at collection of the test, not at import of its module by another one.
    """
    return nightly if is_nightly() else usual


def nightly() -> pytest.MarkDecorator:
    """Mark of a long test that runs with `--hypothesis-profile nightly` only. Call this as `rounds`."""
    reason = "long: runs with --hypothesis-profile nightly"
    return pytest.mark.skipif(not is_nightly(), reason=reason)
