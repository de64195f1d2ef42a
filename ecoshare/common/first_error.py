"""First of several errors that were raised at once."""

from __future__ import annotations

from typing import Any


def first_error(errors: BaseExceptionGroup[Any]) -> Any:
    """First error of a group, whatever the depth at which it is."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
