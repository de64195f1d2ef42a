"""Ages on the command line, such as `30d`."""

from __future__ import annotations

from ecoshare.errors import UsageError


def age_s(text: str, option: str) -> float:
    """Age in seconds.

    Raises:
        UsageError: The text is no age, or has no unit.
    """
    from ecoshare.jobs.quantities import parse_duration_s

    try:
        if not text[-1:].isalpha():  # a bare number is seconds elsewhere: a lot would be removed by mistake
            raise ValueError(f"expected an age with its unit, such as 30d or 12h, got {text!r}")
        return parse_duration_s(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
