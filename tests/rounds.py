"""How often a test does what it does again and again, and which tests are for the night alone."""

from __future__ import annotations

import pytest
from hypothesis import settings


def is_nightly() -> bool:
    """Whether the Hypothesis profile of that name is used."""
    return settings.get_current_profile_name() == "nightly"


def rounds(usual: int, nightly: int) -> int:
    """`nightly` under the Hypothesis profile of that name, as for properties; `usual` otherwise.

    To be asked where a test is collected, not where its module is imported by another one.
    """
    return nightly if is_nightly() else usual


def nightly() -> pytest.MarkDecorator:
    """Marks a long test that runs with `--hypothesis-profile nightly` alone; to be asked as `rounds`."""
    reason = "long: runs with --hypothesis-profile nightly"
    return pytest.mark.skipif(not is_nightly(), reason=reason)
