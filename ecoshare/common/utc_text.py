"""Times as files and JSON state them."""

from __future__ import annotations

import time


def utc_text(unix_s: float | None = None) -> str:
    """A time (s since 1970), or the present one, in ISO 8601 and UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_s))
