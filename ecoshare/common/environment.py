"""Changes of environment variables."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping


def change(environment: MutableMapping[str, str], changes: Mapping[str, str | None]) -> None:
    """Set variables in place; None removes one."""
    for name, value in changes.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
