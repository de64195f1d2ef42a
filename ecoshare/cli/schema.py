"""`ecoshare schema`."""

from __future__ import annotations

import json


def schema() -> None:
    """Print the JSON Schema of job files."""
    from ecoshare.jobs.schema import json_schema

    print(json.dumps(json_schema(), indent=2))
