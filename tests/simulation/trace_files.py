"""Trace files: small ones that tests write, and the public ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ecoshare.errors import InvalidJobFile, Mistake
from ecoshare.simulation.traces.any_trace import read

TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"

needs_data = pytest.mark.skipif(
    "ECOSHARE_DATA" not in os.environ, reason="ECOSHARE_DATA names no folder with the public traces"
)


def data(*parts: str) -> Path:
    """File of a public trace."""
    return Path(os.environ["ECOSHARE_DATA"], *parts)


def written(folder: Path, text: str, name: str = "trace.txt") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def mistakes(path: Path) -> tuple[Mistake, ...]:
    """Mistakes in a trace."""
    with pytest.raises(InvalidJobFile) as caught:
        read(path)
    return caught.value.mistakes
