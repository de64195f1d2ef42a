"""How often a test does what it does again and again."""

from __future__ import annotations

from hypothesis import settings


def rounds(usual: int, nightly: int) -> int:
    """`nightly` under the Hypothesis profile of that name, as for properties; `usual` otherwise.

    To be asked where a test is collected, not where its module is imported by another one.
    """
    return nightly if settings.get_current_profile_name() == "nightly" else usual
